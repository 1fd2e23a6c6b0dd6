"""Rate buckets in the simulation."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any, NamedTuple

from schemas.topics import RATE_COMMANDS, REPLIES
from tests.simulation.families.registry import Committed, Draft, SimulatedFamily

_WEIGHTS = {
    "rate.acquire": 50,
    "rate.lease": 12,
    "rate.settle": 12,
    "rate.peek": 8,
    "rate.penalize": 4,
    "rate.release": 2,
    "rate.rules.put": 2,
    "rate.rules.get": 2,
}
_TYPES, _TYPE_WEIGHTS = list(_WEIGHTS), list(_WEIGHTS.values())
_ASKS = ("rate.acquire", "rate.lease")


class _Granted(NamedTuple):
    """Permits of one grant by one rule, at least so many of which were used."""

    at: int
    count: int
    until: int
    """When its lease expires; 0 when it has none, or may have ended before."""


def _rules(bucket: str) -> list[dict[str, Any]]:
    """A bucket's rules never change, so that what was granted can be held against them."""
    number = int(bucket[1:])
    return [
        {
            "ruleId": "s",
            "kind": "sliding",
            "windowMs": [1, 400, 3000, 30_000][number % 4],
            "requestsPerWindow": 4,
        },
        {"ruleId": "b", "kind": "bucket", "windowMs": 2000, "requestsPerWindow": 5},
        {"ruleId": "w", "windowMs": 1000, "requestsPerWindow": 6, "maxConcurrency": number % 3 and 4},
    ][: 1 + number % 3]


def draft(random: Random, keys: Sequence[str]) -> Draft:
    """A command about one of the buckets."""
    key = random.choice(keys)
    (type_,) = random.choices(_TYPES, _TYPE_WEIGHTS)
    body: dict[str, Any] = {"type": type_, "bucketId": key}
    if type_ in (*_ASKS, "rate.peek"):
        body["requested"] = random.choice([1, 1, 2, 3, 10])
        if random.random() < 0.9:
            body["rules"] = _rules(key)
    if type_ in _ASKS:
        body["minimum"] = random.choice([1, 1, 2, 9])
        body["timeoutMs"] = random.choice([0, 400, 3000, 20_000])
        body["leaseMs"] = random.choice([1000, 4000, 60_000])
        body["runId"] = random.choice([None, "x", "y"])
    elif type_ == "rate.settle":
        body["acquireCommandId"] = f"c{random.randrange(1, 40)}"
        body["used"] = random.choice([0, 1, 5])
    elif type_ == "rate.penalize":
        body["cooldownMs"] = random.choice([0, 300, 2000])
    elif type_ == "rate.release":
        body |= {"leaseId": "1-1", "fencingNumber": 1}
    elif type_ == "rate.rules.put":
        body["rules"] = _rules(key)
        body["expectedVersion"] = random.choice([None, 0, 1])
    return key, body


def invariants(committed: Committed) -> Iterator[str]:
    """No rule is ever exceeded, by what commands and replies alone tell."""
    bucket_of: dict[str, str] = {}
    most_used: dict[str, int] = {}
    for partition in committed[RATE_COMMANDS.name]:
        for record in partition:
            try:
                command = json.loads(record.value or b"")
                key = (record.key or b"").decode()
                type_, command_id = command["type"], command["commandId"]
            except (ValueError, KeyError, TypeError):
                continue
            if type_ in _ASKS and command.get("bucketId") == key:
                bucket_of[command_id] = key
            elif type_ == "rate.settle":
                settled = command["acquireCommandId"]
                most_used[settled] = min(command["used"], most_used.get(settled, command["used"]))
    grants: dict[str, set[tuple[str, _Granted]]] = defaultdict(set)
    for partition in committed[REPLIES.name]:
        for record in partition:
            reply = json.loads(record.value or b"")
            command_id, result = reply["commandId"], reply.get("result") or {}
            if command_id in bucket_of and result.get("grantedAt"):
                count = min(result["granted"], most_used.get(command_id, result["granted"]))
                granted = _Granted(result["grantedAt"], count, result.get("expiresAt") or 0)
                grants[bucket_of[command_id]].add((command_id, granted))
    for bucket, found in grants.items():
        in_order = sorted(granted for _, granted in found)
        for rule in _rules(bucket):
            yield from _exceeded(bucket, rule, in_order)


def _exceeded(bucket: str, rule: dict[str, Any], grants: list[_Granted]) -> Iterator[str]:
    most, window_ms, concurrency = rule["requestsPerWindow"], rule["windowMs"], rule.get("maxConcurrency")
    for number, last in enumerate(grants, 1):
        before = grants[:number]
        if concurrency:
            held = sum(each.count for each in before if each.until > last.at)
            if held > concurrency:
                yield f"{bucket}: {held} permits are in leases at {last.at}, {concurrency} may be"
        if rule.get("kind") == "bucket":
            for first in before:
                calls = sum(each.count for each in before if each.at >= first.at)
                if calls > most + Fraction((last.at - first.at) * most, window_ms):
                    yield f"{bucket}: {calls} permits of {rule} in {first.at}..{last.at}"
        else:
            # Two windows may touch a span of a window's length.
            allowed = most if rule.get("kind") == "sliding" else 2 * most
            calls = sum(each.count for each in before if each.at > last.at - window_ms)
            if calls > allowed:
                yield f"{bucket}: {calls} permits of {rule} up to {last.at}"


SIMULATED = SimulatedFamily("rate", "b", draft, invariants)
