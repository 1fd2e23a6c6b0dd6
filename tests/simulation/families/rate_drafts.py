"""What clients ask of rate buckets in the simulation; grants that they end are mostly ones that were answered."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from tests.simulation.families.registry import Answered, Draft

ASKS = ("rate.acquire", "rate.lease")
_WEIGHTS = {
    "rate.acquire": 50,
    "rate.lease": 14,
    "rate.settle": 16,
    "rate.release": 10,
    "rate.renew": 6,
    "rate.peek": 6,
    "rate.penalize": 4,
    "rate.rules.put": 2,
    "rate.rules.get": 2,
}
_TYPES, _TYPE_WEIGHTS = list(_WEIGHTS), list(_WEIGHTS.values())
_OF_GRANTS = ("rate.settle", "rate.release", "rate.renew")


def rules_of(bucket: str) -> list[dict[str, Any]]:
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


def draft(random: Random, keys: Sequence[str], answered: Answered) -> Draft:
    """A command about one of the buckets."""
    key = random.choice(keys)
    (type_,) = random.choices(_TYPES, _TYPE_WEIGHTS)
    if type_ in _OF_GRANTS:
        return _about_a_grant(random, key, type_, answered)
    body: dict[str, Any] = {"type": type_, "bucketId": key}
    if type_ in (*ASKS, "rate.peek"):
        body["requested"] = random.choice([1, 1, 2, 3, 10])
        if random.random() < 0.9:
            body["rules"] = rules_of(key)
    if type_ in ASKS:
        body["minimum"] = random.choice([1, 1, 2, 9])
        body["timeoutMs"] = random.choice([0, 400, 3000, 20_000])
        body["leaseMs"] = random.choice([1000, 4000, 60_000])
        body["runId"] = random.choice([None, "x", "y"])
    elif type_ == "rate.penalize":
        body["cooldownMs"] = random.choice([0, 300, 2000])
    elif type_ == "rate.rules.put":
        body["rules"] = rules_of(key)
        body["expectedVersion"] = random.choice([None, 0, 1])
    return key, body


def _about_a_grant(random: Random, key: str, type_: str, answered: Answered) -> Draft:
    """Release, settle or renew a grant that was answered and may have ended; or one that nobody has."""
    fields: dict[str, Any] = {"leaseId": "1-1", "fencingNumber": 1}
    if type_ == "rate.settle":
        fields = {"acquireCommandId": f"c{random.randrange(1, 40)}"}
    granted = [each for each in answered() if each.result.get("granted") and each.result.get("grantedAt")]
    if type_ == "rate.renew":
        fields["leaseMs"] = random.choice([1000, 5000])
    if type_ != "rate.settle":
        granted = [each for each in granted if "leaseId" in each.result]
    if granted and random.random() < 0.9:
        # Mostly one whose windows are not over: what is wrong with an older one is harder to see.
        ended = random.choice(granted[-2:] if random.random() < 0.6 else granted)
        key = ended.key
        if "leaseId" in ended.result:
            fields.pop("acquireCommandId", None)
            fields |= {name: ended.result[name] for name in ("leaseId", "fencingNumber")}
        else:
            fields |= {"acquireCommandId": ended.command_id}
    if type_ == "rate.settle":
        fields["used"] = random.choice([0, 0, 1, 5])
    return key, {"type": type_, "bucketId": key, **fields}
