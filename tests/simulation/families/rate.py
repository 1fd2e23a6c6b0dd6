"""Rate buckets in the simulation: what always holds for what was granted, by commands, replies and the changelog."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

from agents.rate.granting import EXPIRE
from agents.rate.tables import LEASES
from schemas.topics import RATE_COMMANDS, REPLIES, STATE_CHANGELOG
from streams.lane_tables import PROGRESS, TIMERS_DUE
from streams.partitioner import partition_for
from tests.simulation.families.rate_drafts import ASKS, draft, rules_of
from tests.simulation.families.registry import Committed, SimulatedFamily
from tests.simulation.families.run_state import left


class _Grant(NamedTuple):
    """Permits that somebody was answered to have."""

    at: int
    granted: int
    used: int
    """At least so many were used."""
    until: int
    """Its lease lasted at least until then; 0 when it has none."""
    is_block: bool
    number: int
    """Of its lease; 0 when it has none."""
    is_ended: bool
    """Somebody asked for its end."""


@dataclass
class _Asked:
    """What clients have sent."""

    bucket_of: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Command id -> bucket, and whether a block was asked for."""
    ends: dict[tuple[str, str], list[tuple[int, int | None]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Bucket and lease id or command id -> time, and what was used (None: all), of each command that ends it."""
    times_sent: Counter[str] = field(default_factory=Counter)
    """Command id of an acquire -> how often it was sent."""
    settles: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Command id of a settlement -> bucket, and command id of the acquire that it settles."""


def invariants(committed: Committed) -> Iterator[str]:
    """No rule is ever exceeded, and every lease ends when it has to."""
    asked = _asked(committed)
    grants = _grants(committed, asked)
    for bucket, found in grants.items():
        in_order = sorted(found)
        for rule in rules_of(bucket):
            yield from _exceeded(bucket, rule, in_order)
    yield from _ends(committed, grants)
    yield from _settled_again(committed, asked)


def _settled_again(committed: Committed, asked: _Asked) -> Iterator[str]:
    """A grant without a lease is settled once, unless its command came again after its answer was forgotten."""
    settled: dict[tuple[str, str], set[str]] = defaultdict(set)
    for partition in committed[REPLIES.name]:
        for record in partition:
            reply = json.loads(record.value or b"")
            if reply["ok"] and reply["commandId"] in asked.settles:
                settled[asked.settles[reply["commandId"]]].add(reply["commandId"])
    for (bucket, acquire), by in settled.items():
        if len(by) > 1 and asked.times_sent[acquire] == 1:
            yield f"{bucket}: what {acquire} got was settled by each of {sorted(by)}"


def _asked(committed: Committed) -> _Asked:
    asked = _Asked()
    for partition in committed[RATE_COMMANDS.name]:
        for record in partition:
            try:
                command = json.loads(record.value or b"")
                key = (record.key or b"").decode()
                type_, command_id = command["type"], command["commandId"]
            except (ValueError, KeyError, TypeError):
                continue
            if type_ in ASKS and command.get("bucketId") == key:
                asked.bucket_of[command_id] = key, type_ == "rate.lease"
                asked.times_sent[command_id] += 1
            elif type_ in ("rate.settle", "rate.release"):
                ended = command.get("leaseId") or command["acquireCommandId"]
                asked.ends[key, ended].append((record.timestamp, command.get("used")))
                if type_ == "rate.settle" and not command.get("leaseId"):
                    asked.settles[command_id] = key, ended
    return asked


def _grants(committed: Committed, asked: _Asked) -> dict[str, set[_Grant]]:
    """By bucket. Who was answered several times got its permits once."""
    grants: dict[str, dict[str, _Grant]] = defaultdict(dict)
    for partition in committed[REPLIES.name]:
        for record in partition:
            reply = json.loads(record.value or b"")
            command_id, result = reply["commandId"], reply.get("result") or {}
            if command_id not in asked.bucket_of or not result.get("grantedAt"):
                continue
            bucket, is_block = asked.bucket_of[command_id]
            ends = asked.ends.get((bucket, result.get("leaseId") or command_id), [])
            granted, at = result["granted"], result["grantedAt"]
            used = min([granted, *(used for _, used in ends if used is not None)])
            until = min([result["expiresAt"], *(time for time, _ in ends)]) if "leaseId" in result else 0
            number = result.get("fencingNumber", 0)
            name = f"{command_id} {at} {number}"
            grants[bucket][name] = _Grant(
                at, granted, used, until and max(at, until), is_block, number, bool(ends)
            )
    return {bucket: set(found.values()) for bucket, found in grants.items()}


def _exceeded(bucket: str, rule: dict[str, Any], grants: list[_Grant]) -> Iterator[str]:
    most, window_ms, concurrency = rule["requestsPerWindow"], rule["windowMs"], rule.get("maxConcurrency")
    for number, last in enumerate(grants, 1):
        before, now = grants[:number], last.at
        if concurrency:
            held = sum(each.granted for each in before if each.until > now)
            if held > concurrency:
                yield f"{bucket}: {held} permits are in leases at {now}, {concurrency} may be"
        in_blocks = sum(each.granted for each in before if each.is_block and each.until > now)
        charged = [
            (each.until if each.is_block else each.at, each.used)
            for each in before
            if not (each.is_block and each.until > now)
        ]
        if rule.get("kind") == "bucket":
            for first in {now, *(at for at, _ in charged)}:
                calls = in_blocks + sum(used for at, used in charged if at >= first)
                if calls > most + Fraction((now - first) * most, window_ms):
                    yield f"{bucket}: {calls} permits of {rule} in {first}..{now}"
        else:
            # Two windows may touch a span of a window's length.
            allowed = most if rule.get("kind") == "sliding" else 2 * most
            calls = in_blocks + sum(used for at, used in charged if at > now - window_ms)
            if calls > allowed:
                yield f"{bucket}: {calls} permits of {rule} up to {now}"


def _ends(committed: Committed, grants: dict[str, set[_Grant]]) -> Iterator[str]:
    """Every lease was released or settled, or has expired, or will; and none has ended before its time."""
    changelog = committed[STATE_CHANGELOG.name]
    open_leases: set[tuple[str, int]] = set()
    for partition in changelog:
        timers = {at: timer.due for at, timer in left(partition, TIMERS_DUE)}
        for (bucket, expires_at, number), _ in left(partition, LEASES):
            open_leases.add((bucket, number))
            due = timers.get(("rate", bucket, EXPIRE))
            if due is None or due > expires_at:
                yield f"{bucket}: lease {number} expires at {expires_at}, and the timer for it is due at {due}"
    clocks = [
        max((lane.clock for _, lane in left(partition, PROGRESS)), default=0) for partition in changelog
    ]
    for bucket, found in grants.items():
        now = clocks[partition_for(bucket.encode(), len(clocks))]
        for grant in found:
            is_open = (bucket, grant.number) in open_leases
            if grant.number and not is_open and not grant.is_ended and now < grant.until:
                yield f"{bucket}: lease {grant.number} was to last until {grant.until}, and is gone at {now}"


SIMULATED = SimulatedFamily("rate", "b", draft, invariants)
