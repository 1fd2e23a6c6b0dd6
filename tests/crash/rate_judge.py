"""Whether permits were ever granted beyond a rule, by the topics. Imports nothing of ours.

What was granted is in the replies, what was asked and when a lease was given back is in the commands, what is
counted is in the changelog. Permits of a block may be used at any time from its grant to its end, so a window is
charged with all of the blocks that reach into it: at the moment of a grant those that are open, and those that have
ended within the window.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.crash.history import Row
from tests.crash.state import text_part

ASKING = ("rate.acquire", "rate.lease")
ENDING = ("rate.release", "rate.settle")
OPEN_TABLES = {
    b"rate.lease",
    b"rate.renewal",
    b"rate.wait",
    b"rate.wait_place",
    b"rate.queue",
    b"rate.turn",
}
"""Tables in which nothing is left once every lease and every wait has ended."""


class Rule(NamedTuple):
    """What is counted together, and its limit."""

    rule_id: str
    kind: str
    window_ms: int
    permits: int
    concurrency: int


@dataclass
class Grant:
    """Permits that somebody got."""

    command_id: str
    bucket: str
    rules: tuple[Rule, ...]
    count: int
    at: int
    """In milliseconds since the epoch."""
    fencing: int | None
    expires_at: int | None
    """None: there is no lease."""
    is_block: bool
    used: int
    """As far as somebody said so, else all of it."""
    ended_at: int | None = None
    """When the lease was given back; None: it ran out, or there is none."""

    @property
    def end(self) -> int:
        """When the last of its permits can have been used."""
        if self.expires_at is None or not self.is_block:
            return self.at
        return min(self.expires_at, self.ended_at or self.expires_at)

    @property
    def freed(self) -> int:
        """When its lease had ended, at the latest."""
        assert self.expires_at is not None
        return min(self.expires_at, self.ended_at or self.expires_at)


@dataclass
class Verdict:
    """What was found."""

    grants: list[Grant] = field(default_factory=list)
    fullest: dict[tuple[str, Rule], int] = field(default_factory=dict)
    """Bucket and rule -> most permits that counted at the same time, of `permits` or of the kind's bound."""
    most_held: dict[tuple[str, Rule], int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)

    @property
    def permits(self) -> int:
        """How many were granted in all."""
        return sum(grant.count for grant in self.grants)

    @property
    def lost_blocks(self) -> int:
        """Blocks that ran out."""
        return sum(grant.is_block and grant.ended_at is None for grant in self.grants)


def judge(commands: Iterable[tuple[int, Row]], replies: Iterable[Row], changelog: Iterable[Row]) -> Verdict:
    """Look at everything. `commands` come with the broker's time; rows are in the order of each partition."""
    verdict = Verdict()
    found = verdict.violations
    sent: dict[str, tuple[int, dict[str, Any]]] = {}
    for timestamp, row in commands:
        sent.setdefault(row.body["commandId"], (timestamp, row.body))
    answers: dict[str, dict[str, Any]] = {}
    for row in replies:
        command_id = row.body.get("commandId") or ""
        if command_id not in sent:
            found.append(f"{row.place} answers {command_id!r}, which nobody has sent")
        elif answers.setdefault(command_id, row.body) != row.body:
            found.append(f"{command_id} was answered {answers[command_id]} and {row.body}")
    found += [f"{command_id} was never answered" for command_id in sent.keys() - answers.keys()]
    verdict.grants = _grants(sent, answers)
    _judge_grants(verdict)
    found += _stored_violations(changelog)
    return verdict


def _grants(
    sent: Mapping[str, tuple[int, dict[str, Any]]], answers: Mapping[str, dict[str, Any]]
) -> list[Grant]:
    grants: dict[str, Grant] = {}
    by_lease: dict[tuple[str, str], Grant] = {}
    for command_id, answer in answers.items():
        _, command = sent[command_id]
        result = answer.get("result", {})
        if command["type"] not in ASKING or not result.get("granted"):
            continue
        grant = Grant(
            command_id=command_id,
            bucket=command["bucketId"],
            rules=tuple(_rule(rule) for rule in command["rules"]),
            count=result["granted"],
            at=result["grantedAt"],
            fencing=result.get("fencingNumber"),
            expires_at=result.get("expiresAt"),
            is_block=command["type"] == "rate.lease",
            used=result["granted"],
        )
        grants[command_id] = grant
        if "leaseId" in result:
            by_lease[grant.bucket, result["leaseId"]] = grant
    for command_id, answer in answers.items():
        timestamp, command = sent[command_id]
        if command["type"] == "rate.renew" and answer["ok"] and answer["result"]["renewed"]:
            grant = by_lease[command["bucketId"], command["leaseId"]]
            grant.expires_at = max(grant.expires_at or 0, answer["result"]["expiresAt"])
        if command["type"] not in ENDING or not answer["ok"] or answer["result"].get("released") is False:
            continue
        if "leaseId" in command:
            grant = by_lease[command["bucketId"], command["leaseId"]]
            grant.ended_at = timestamp
        else:
            grant = grants[command["acquireCommandId"]]
        grant.used = command.get("used", grant.count)
    return sorted(grants.values(), key=lambda grant: grant.at)


def _rule(rule: Mapping[str, Any]) -> Rule:
    return Rule(
        rule["ruleId"],
        rule.get("kind") or "window",
        int(rule["windowMs"]),
        int(rule["requestsPerWindow"]),
        int(rule.get("maxConcurrency") or 0),
    )


def _judge_grants(verdict: Verdict) -> None:
    by_rule: defaultdict[tuple[str, Rule], list[Grant]] = defaultdict(list)
    fencing: defaultdict[str, list[int]] = defaultdict(list)
    for grant in verdict.grants:
        for rule in grant.rules:
            by_rule[grant.bucket, rule].append(grant)
        if grant.fencing is not None:
            fencing[grant.bucket].append(grant.fencing)
    for bucket, numbers in fencing.items():
        if len(set(numbers)) != len(numbers):
            verdict.violations.append(f"{bucket}: a fencing number was given twice")
    for (bucket, rule), grants in by_rule.items():
        at = (bucket, rule)
        for time, counted in _counted(rule, grants):
            verdict.fullest[at] = max(verdict.fullest.get(at, 0), counted)
            if counted > rule.permits:
                verdict.violations.append(f"{bucket}: {counted} permits at {time}, and the rule is {rule}")
        if rule.concurrency:
            for time, held in _held(grants):
                verdict.most_held[at] = max(verdict.most_held.get(at, 0), held)
                if held > rule.concurrency:
                    verdict.violations.append(f"{bucket}: {held} in leases at {time}, and the rule is {rule}")


def _counted(rule: Rule, grants: list[Grant]) -> Iterator[tuple[int, int]]:
    """At every moment at which something was granted: the time, and how many permits count for the rule.

    Of equal times all are granted before it is looked at.
    """
    if not rule.window_ms:
        return
    first = grants[0].at
    ends: list[tuple[int, int]] = []
    charged: list[tuple[int, int]] = []
    total = opened = 0
    level, level_at = 0, first
    for grant, following in pairwise([*grants, None]):
        assert grant is not None
        heapq.heappush(ends, (grant.end, grant.used))
        opened += grant.used
        if following is not None and following.at == grant.at:
            continue
        now = grant.at
        while ends and ends[0][0] <= now:
            end, count = heapq.heappop(ends)
            opened -= count
            if rule.kind == "bucket":
                level = max(0, level - (end - level_at) * rule.permits) + count * rule.window_ms
                level_at = end
            else:
                heapq.heappush(charged, (end, count))
                total += count
        if rule.kind == "bucket":
            # In permits times the window, so that it is a whole number; what is missing of a permit is one.
            missing = max(0, level - (now - level_at) * rule.permits)
            yield now, -(-missing // rule.window_ms) + opened
            continue
        since = now - rule.window_ms + 1 if rule.kind == "sliding" else now - (now - first) % rule.window_ms
        while charged and charged[0][0] < since:
            total -= heapq.heappop(charged)[1]
        yield now, total + opened


def _held(grants: Iterable[Grant]) -> Iterator[tuple[int, int]]:
    ends: list[tuple[int, int]] = []
    held = 0
    for grant in grants:
        while ends and ends[0][0] <= grant.at:
            held -= heapq.heappop(ends)[1]
        heapq.heappush(ends, (grant.freed, grant.count))
        held += grant.count
        yield grant.at, held


def _stored_violations(changelog: Iterable[Row]) -> Iterator[str]:
    latest: dict[tuple[int, bytes], Row] = {}
    for row in changelog:
        if row.key is None:
            continue
        table, _ = text_part(row.key)
        latest[row.place.partition, row.key] = row
        rules = json.loads(row.value).get("rules", {}) if table == b"rate.bucket" and row.value else {}
        for stored in rules.values():
            counted = stored.get("used", 0) + (stored.get("rest", 0) > 0) + stored.get("reserved", 0)
            if counted > stored["permits"]:
                yield f"{row.place} counts {counted} permits of {stored['permits']}"
            if stored.get("concurrency") and stored.get("held", 0) > stored["concurrency"]:
                yield f"{row.place} counts {stored['held']} in leases, of {stored['concurrency']}"
    for row in latest.values():
        if row.value is not None and text_part(row.key or b"")[0] in OPEN_TABLES:
            yield f"{row.place} is left, and everything has ended"
