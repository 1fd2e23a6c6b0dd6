"""Wire contract, section 7: rate buckets."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.bare_client import Asked, BareClient, command, new_id

LONG_MS = 60_000
HOUR_MS = 3_600_000


def rule(permits: float = 3, window_ms: float = HOUR_MS, **fields: Any) -> dict[str, Any]:
    """A rule; its window outlasts a test unless said otherwise."""
    return {"ruleId": "r", "requestsPerWindow": permits, "windowMs": window_ms, **fields}


@pytest.fixture
def bucket() -> str:
    """A bucket that nobody has named before."""
    return new_id("org:provider")


def acquire(client: BareClient, bucket: str, *rules: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The result of an acquire; by one rule of 3 permits, unless others are named."""
    return client.result("rate.acquire", bucket, rules=[*(rules or [rule()])], **fields)


def wait(client: BareClient, bucket: str, *rules: dict[str, Any], **fields: Any) -> Asked:
    """Wait for permits."""
    fields = {"timeoutMs": LONG_MS, **fields}
    return client.ask("rate.acquire", bucket, rules=[*(rules or [rule()])], **fields)


def waiting(client: BareClient, bucket: str) -> int:
    """How many commands wait."""
    count = client.result("rate.peek", bucket)["waiting"]
    assert isinstance(count, int)
    return count


def granted(client: BareClient, asked: Asked) -> int:
    """How many permits a command was answered."""
    count = client.reply(asked)["result"]["granted"]
    assert isinstance(count, int)
    return count


def test_a_grant_is_the_smallest_rest_of_all_rules_and_taken_from_all(
    client: BareClient, bucket: str
) -> None:
    rules = [rule(5, ruleId="a"), rule(3, ruleId="b", kind="sliding"), rule(9, ruleId="c", kind="bucket")]
    first = acquire(client, bucket, *rules, requested=2)
    assert first == {"granted": 2, "waitMs": 0, "grantedAt": first["grantedAt"]}
    assert acquire(client, bucket, *rules, requested=9)["granted"] == 1
    refused = acquire(client, bucket, *rules)
    assert refused["granted"] == 0
    assert HOUR_MS - 30_000 < refused["waitMs"] <= HOUR_MS * 33 // 32
    used = {each["ruleId"]: each["used"] for each in client.result("rate.peek", bucket, rules=rules)["rules"]}
    assert used == {"a": 3, "b": 3, "c": 3}


def test_what_is_no_rule_is_ignored_and_without_a_rule_all_is_granted(
    client: BareClient, bucket: str
) -> None:
    for wrong in (
        {"ruleId": 1, "requestsPerWindow": 1, "windowMs": 1},
        {"ruleId": "r", "requestsPerWindow": 0, "windowMs": 1},
        {"ruleId": "r", "requestsPerWindow": True, "windowMs": 1},
        {"ruleId": "r", "requestsPerWindow": 1, "windowMs": "1"},
        None,
    ):
        assert client.result("rate.acquire", bucket, rules=[wrong], requested=7.9) == {
            "granted": 7,
            "waitMs": 0,
        }
    assert client.refusal("rate.acquire", bucket, rules="r")["code"] == "INVALID_COMMAND"
    assert client.refusal("rate.acquire", bucket)["code"] == "RATE_RULES_REQUIRED"


def test_a_window_without_length_never_fills(client: BareClient, bucket: str) -> None:
    for _ in range(3):
        assert acquire(client, bucket, rule(2, 0), requested=5)["granted"] == 2


@pytest.mark.parametrize("kind", ["window", "sliding", "bucket"])
def test_permits_come_back_when_it_was_said(client: BareClient, bucket: str, kind: str) -> None:
    limit = rule(2, 600, kind=kind)
    acquire(client, bucket, limit, requested=2)
    told = acquire(client, bucket, limit)
    if told["granted"] == 0:
        assert 10 <= told["waitMs"] <= 619
        time.sleep(told["waitMs"] / 1000 + 0.01)
        told = acquire(client, bucket, limit)
    assert told["granted"] == 1


def test_fewer_than_the_minimum_are_granted_as_none(client: BareClient, bucket: str) -> None:
    acquire(client, bucket)
    assert acquire(client, bucket, requested=5, minimum=3)["granted"] == 0
    assert acquire(client, bucket, requested=2, minimum=2)["granted"] == 2
    refused = client.refusal("rate.acquire", bucket, rules=[rule()], requested=4, minimum=4)
    assert (refused["code"], refused["limit"], refused["minimum"]) == ("RATE_NEVER_GRANTED", 3, 4)


def test_the_same_command_again_gets_the_same_permits(client: BareClient, bucket: str) -> None:
    command_id = new_id()
    first = acquire(client, bucket, command_id=command_id, requested=2)
    assert acquire(client, bucket, command_id=command_id, requested=1) == first
    assert acquire(client, bucket, requested=9)["granted"] == 1


def test_a_cooldown_holds_for_everybody_and_is_never_shortened(client: BareClient, bucket: str) -> None:
    until = client.result("rate.penalize", bucket, cooldownMs=HOUR_MS)["cooldownUntil"]
    for shorter in (1000, 0, -1, "x"):
        assert client.result("rate.penalize", bucket, cooldownMs=shorter) == {"cooldownUntil": until}
    told = acquire(client, bucket)
    assert told["granted"] == 0
    assert HOUR_MS - 30_000 < told["waitMs"] <= HOUR_MS


def test_who_waits_gets_permits_when_they_come_back(client: BareClient, bucket: str) -> None:
    limit = rule(1, 700, kind="sliding")
    acquire(client, bucket, limit)
    asked = [wait(client, bucket, limit) for _ in range(2)]
    times = [client.reply(each)["result"]["grantedAt"] for each in asked]
    assert times[1] - times[0] >= 700


def test_who_waits_is_answered_at_the_time_out(client: BareClient, bucket: str) -> None:
    acquire(client, bucket, requested=3)
    asked = wait(client, bucket, timeoutMs=300)
    record = client.reply_record(asked.correlation_id)
    assert record.json()["result"]["granted"] == 0
    assert record.timestamp >= asked.sent.timestamp + 300
    assert waiting(client, bucket) == 0


def test_a_waiting_command_that_comes_again_waits_once(client: BareClient, bucket: str) -> None:
    limit = rule(2, maxConcurrency=1)
    lease = acquire(client, bucket, limit)
    command_id = new_id()
    earlier = wait(client, bucket, limit, command_id=command_id)
    again = wait(client, bucket, limit, command_id=command_id)
    assert waiting(client, bucket) == 1
    client.result("rate.release", bucket, leaseId=lease["leaseId"], fencingNumber=lease["fencingNumber"])
    first = client.reply(again)["result"]
    assert first["granted"] == 1
    assert client.reply(earlier)["result"] == first
    assert acquire(client, bucket, limit, command_id=command_id) == first
    assert acquire(client, bucket, limit)["granted"] == 0


def test_a_run_with_many_waiting_does_not_starve_those_with_one(client: BareClient, bucket: str) -> None:
    limit = rule(10**6, maxConcurrency=1)
    lease = acquire(client, bucket, limit)
    many = [wait(client, bucket, limit, runId="many") for _ in range(30)]
    ones = [wait(client, bucket, limit, runId=f"one{number}") for number in range(5)]
    order = []
    left = {each.correlation_id: each for each in (*many, *ones)}
    for _ in range(7):
        client.result("rate.release", bucket, leaseId=lease["leaseId"], fencingNumber=lease["fencingNumber"])
        record = client.reader.wait("replies", lambda record: record.key in left, what="a grant")[0]
        order.append(left.pop(record.key))
        lease = record.json()["result"]
    assert order == [many[0], *ones, many[1]]


def test_concurrency_is_bounded_by_leases(client: BareClient, bucket: str) -> None:
    limit = rule(100, maxConcurrency=3)
    lease = acquire(client, bucket, limit, requested=2)
    assert lease["expiresAt"] == lease["grantedAt"] + 300_000
    assert acquire(client, bucket, limit, requested=9)["granted"] == 1
    assert acquire(client, bucket, limit)["granted"] == 0
    fenced = {"leaseId": lease["leaseId"], "fencingNumber": lease["fencingNumber"] + 1}
    assert client.result("rate.release", bucket, **fenced) == {"released": False}
    right = {**fenced, "fencingNumber": lease["fencingNumber"]}
    assert client.result("rate.release", bucket, **right) == {"released": True}
    assert client.result("rate.release", bucket, **right) == {"released": False}
    later = acquire(client, bucket, limit, requested=9)
    assert (later["granted"], later["fencingNumber"] > lease["fencingNumber"]) == (2, True)


def test_a_lease_that_is_renewed_lasts_on_under_its_id(client: BareClient, bucket: str) -> None:
    limit = rule(100, maxConcurrency=1)
    lease = acquire(client, bucket, limit, leaseMs=1000)
    of_lease = {"leaseId": lease["leaseId"], "fencingNumber": lease["fencingNumber"]}
    fenced = {**of_lease, "fencingNumber": lease["fencingNumber"] + 1}
    assert client.result("rate.renew", bucket, **fenced) == {"renewed": False}
    renewed = client.result("rate.renew", bucket, **of_lease, leaseMs=HOUR_MS)
    assert renewed == {"renewed": True, "expiresAt": renewed["expiresAt"], "validMs": HOUR_MS}
    assert renewed["expiresAt"] >= lease["grantedAt"] + HOUR_MS
    # It never lasts shorter than it would have.
    shorter = client.result("rate.renew", bucket, **of_lease, leaseMs=1000)
    assert shorter["expiresAt"] == renewed["expiresAt"]
    waited = client.reply(wait(client, bucket, limit, timeoutMs=1500))["result"]
    assert waited["granted"] == 0
    assert client.result("rate.release", bucket, **of_lease) == {"released": True}
    assert client.result("rate.renew", bucket, **of_lease) == {"renewed": False}
    assert acquire(client, bucket, limit)["granted"] == 1


def test_a_lease_comes_back_without_its_holder(client: BareClient, bucket: str) -> None:
    limit = rule(100, maxConcurrency=1)
    lease = acquire(client, bucket, limit, leaseMs=1000)
    next_one = client.reply(wait(client, bucket, limit))["result"]
    assert next_one["grantedAt"] >= lease["expiresAt"]
    assert next_one["fencingNumber"] > lease["fencingNumber"]


def test_an_estimate_is_settled(client: BareClient, bucket: str) -> None:
    limit, estimate = rule(10), new_id()
    acquire(client, bucket, limit, requested=8, command_id=estimate)
    settle = {"acquireCommandId": estimate, "used": 3}
    assert client.result("rate.settle", bucket, **settle) == {"refunded": 5, "charged": 0}
    assert client.refusal("rate.settle", bucket, **settle)["code"] == "RATE_GRANT_NOT_FOUND"
    under = new_id()
    acquire(client, bucket, limit, requested=1, command_id=under)
    more = {"acquireCommandId": under, "used": 4}
    assert client.result("rate.settle", bucket, **more) == {"refunded": 0, "charged": 3}
    assert acquire(client, bucket, limit, requested=10)["granted"] == 3
    for wrong in (
        {"used": 1},
        {"used": "1", "leaseId": "x"},
        {"used": 1, "leaseId": "x", "acquireCommandId": "y"},
    ):
        assert client.refusal("rate.settle", bucket, **wrong)["code"] == "INVALID_COMMAND"


def test_a_block_counts_while_it_lasts_and_what_is_unused_comes_back(client: BareClient, bucket: str) -> None:
    limit = rule(10)
    asked = client.ask("rate.lease", bucket, rules=[limit], requested=8, leaseMs=60_000)
    block = client.reply(asked)["result"]
    assert block["granted"] == 8
    assert block["expiresAt"] == block["grantedAt"] + 60_000
    assert block["validMs"] == 60_000
    assert acquire(client, bucket, limit, requested=10)["granted"] == 2
    settled = client.result("rate.settle", bucket, leaseId=block["leaseId"], used=5)
    assert settled == {"refunded": 3, "charged": 0}
    assert acquire(client, bucket, limit, requested=10)["granted"] == 3


def test_a_lost_block_counts_as_used_and_is_shown(client: BareClient, bucket: str) -> None:
    limit = rule(10)
    block = client.result("rate.lease", bucket, rules=[limit], requested=8, leaseMs=1000)
    time.sleep(max(0.0, block["expiresAt"] / 1000 - time.time()) + 0.01)
    seen = client.result("rate.peek", bucket, rules=[limit], requested=10)
    assert (seen["granted"], seen["leases"], seen["lostLeases"], seen["lostPermits"]) == (2, 0, 1, 8)


def test_a_peek_changes_nothing(client: BareClient, bucket: str) -> None:
    question = {"rules": [rule()], "requested": 2}
    seen = client.result("rate.peek", bucket, **question)
    assert (seen["granted"], seen["waitMs"], seen["cooldownUntil"], seen["waiting"], seen["leases"]) == (
        2,
        0,
        0,
        0,
        0,
    )
    (of_rule,) = seen["rules"]
    assert {name: of_rule[name] for name in ("ruleId", "limit", "used")} == {
        "ruleId": "r",
        "limit": 3,
        "used": 0,
    }
    assert client.result("rate.peek", bucket, **question)["granted"] == 2
    assert acquire(client, bucket, requested=9)["granted"] == 3


def test_rules_are_stored_with_a_version_and_read_back(client: BareClient, bucket: str) -> None:
    assert client.result("rate.rules.get", bucket) == {"version": 0, "appliedAt": 0, "rules": []}
    rules = [rule(2, kind="sliding", maxConcurrency=5)]
    assert client.result("rate.rules.put", bucket, rules=rules) == {"version": 1, "changed": True}
    assert client.result("rate.rules.put", bucket, rules=rules) == {"version": 1, "changed": False}
    assert client.result("rate.rules.get", bucket)["rules"] == rules
    assert client.result("rate.acquire", bucket, requested=9)["granted"] == 2
    assert acquire(client, bucket, rule(4), requested=9)["granted"] == 4
    stale = client.refusal("rate.rules.put", bucket, rules=[], expectedVersion=0)
    assert (stale["code"], stale["version"]) == ("RATE_RULES_CHANGED", 1)
    wrong = client.refusal("rate.rules.put", bucket, rules=[{**rule(), "requestsPerWindow": 0}])
    assert wrong["code"] == "INVALID_COMMAND"
    assert "requestsPerWindow" in wrong["message"]
    assert client.result("rate.rules.put", bucket, rules=[], expectedVersion=1)["version"] == 2
    assert client.refusal("rate.acquire", bucket)["code"] == "RATE_RULES_REQUIRED"


def test_a_bucket_has_one_partition_and_commands_find_it(client: BareClient, bucket: str) -> None:
    wrong = (client.partition_of(bucket) + 1) % client.partitions
    asked = client.ask("rate.acquire", bucket, rules=[rule(1)], partition=wrong)
    assert granted(client, asked) == 1
    assert acquire(client, bucket, rule(1))["granted"] == 0


def test_a_wrong_envelope_goes_to_the_dead_letters(client: BareClient, bucket: str) -> None:
    value = command("rate.acquire", bucket, new_id()).replace(b"bucketId", b"runId")
    asked = client.ask_bytes(value, key=bucket.encode(), topic="rate-commands")
    assert client.reply(asked)["error"]["code"] == "KEY_MISMATCH"
    unknown = command("rate.steal", bucket, new_id())
    asked = client.ask_bytes(unknown, key=bucket.encode(), topic="rate-commands")
    assert client.reply(asked)["error"]["code"] == "UNKNOWN_COMMAND"
