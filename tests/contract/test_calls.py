"""Wire contract, section 7: calls."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.bare_client import Asked, BareClient, command, new_id

LONG_MS = 30_000
CALL = {"toolId": "tool", "inputHash": "5e1f"}
SHORT_LEASE = {"leaseMs": 1000}


def claim(client: BareClient, run_id: str, **fields: Any) -> dict[str, Any]:
    """The result of a claim."""
    return client.result("call.claim", run_id, **{**CALL, "owner": "me", **fields})


def publish(client: BareClient, run_id: str, fencing: int = 1, **told: Any) -> dict[str, Any]:
    """The result of a publish."""
    return client.result("call.publish", run_id, **CALL, fencingNumber=fencing, **told)


def wait(client: BareClient, run_id: str, **fields: Any) -> Asked:
    """Wait for a call."""
    return client.ask("call.await", run_id, **{**CALL, "timeoutMs": LONG_MS, **fields})


def fenced(client: BareClient, type_: str, run_id: str, fencing: int, **fields: Any) -> int:
    """Have a command refused for its fencing number; the number that holds."""
    error = client.refusal(type_, run_id, **CALL, fencingNumber=fencing, **fields)
    assert error["code"] == "CALL_FENCED", error
    number = error["fencingNumber"]
    assert isinstance(number, int)
    return number


def outlive(lease: dict[str, Any]) -> None:
    """Let a lease run out; broker and tests have the same clock."""
    time.sleep(max(0.0, lease["leaseExpiresAt"] / 1000 - time.time()) + 0.01)


def test_the_first_claim_gets_the_call_and_the_next_hears_who_has_it(client: BareClient, run_id: str) -> None:
    asked = client.ask("call.claim", run_id, **CALL, owner="first")
    claimed = client.reply(asked)["result"]
    expires = claimed["leaseExpiresAt"]
    assert claimed == {"status": "claimed", "fencingNumber": 1, "leaseExpiresAt": expires}
    assert expires >= asked.sent.timestamp + 300_000
    pending = {"status": "pending", "owner": "first", "leaseExpiresAt": expires}
    assert claim(client, run_id, owner="second") == pending
    assert claim(client, run_id, owner="first") == pending


def test_a_call_is_named_by_tool_and_input_within_its_run(client: BareClient, run_id: str) -> None:
    names = [("t", "h"), ("t", "h2"), ("t\0h", ""), ("t", "\0h"), ("t2", "h")]
    for tool, digest in names:
        assert claim(client, run_id, toolId=tool, inputHash=digest or "x")["status"] == "claimed"
    assert claim(client, new_id("run"), toolId="t", inputHash="h")["status"] == "claimed"


def test_the_same_command_again_gets_the_same_number(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = claim(client, run_id, command_id=command_id)
    assert claim(client, run_id, command_id=command_id, owner="other") == first


@pytest.mark.parametrize(("asked", "given"), [(1, 1000), (10**9, 3_600_000), ("x", 300_000), (5000, 5000)])
def test_a_lease_lasts_1_second_to_1_hour(client: BareClient, run_id: str, asked: Any, given: int) -> None:
    question = client.ask("call.claim", run_id, **CALL, owner="me", leaseMs=asked)
    lease = client.reply(question)["result"]["leaseExpiresAt"] - question.sent.timestamp
    assert given <= lease < given + 30_000


def test_a_published_value_is_a_hit(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    value = {"rows": [1, None, "é"]}
    assert publish(client, run_id, value=value) == {"published": True, "answered": 0}
    hit = {"status": "hit", "ok": True, "value": value}
    assert claim(client, run_id, owner="other") == hit
    assert client.reply(wait(client, run_id))["result"] == hit


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_null_and_what_is_empty_are_values(client: BareClient, run_id: str, value: Any) -> None:
    claim(client, run_id)
    publish(client, run_id, value=value)
    assert claim(client, run_id) == {"status": "hit", "ok": True, "value": value}


def test_a_failure_is_the_result_unless_said_otherwise(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    error = {"name": "TypeError", "message": "no"}
    assert publish(client, run_id, error=error) == {"published": True, "answered": 0}
    hit = {"status": "hit", "ok": False, "error": error}
    assert claim(client, run_id) == hit
    assert client.reply(wait(client, run_id))["result"] == hit


def test_a_released_call_is_claimed_again_with_a_higher_number(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    told = {"error": "busy", "onFailure": "release"}
    assert publish(client, run_id, **told) == {"published": False, "answered": 0}
    assert publish(client, run_id, **told) == {"published": False, "answered": 0}
    assert fenced(client, "call.publish", run_id, 1, value=1) == 1
    assert fenced(client, "call.renew", run_id, 1) == 1
    assert claim(client, run_id)["fencingNumber"] == 2
    assert fenced(client, "call.publish", run_id, 1, **told) == 2


def test_release_is_for_failures_only(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    assert publish(client, run_id, value=1, onFailure="release")["published"] is True


def test_a_publish_tells_a_value_or_an_error(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    for told in ({}, {"error": None}, {"value": 1, "error": 2}):
        error = client.refusal("call.publish", run_id, **CALL, fencingNumber=1, **told)
        assert error["code"] == "INVALID_COMMAND"
    assert claim(client, run_id)["status"] == "pending"


def test_the_same_publish_again_is_ok_and_another_is_not(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    publish(client, run_id, value={"a": 1, "b": [2]})
    again = publish(client, run_id, value={"b": [2.0], "a": 1})
    assert again == {"published": True, "answered": 0}
    for told in ({"value": {"a": True, "b": [2]}}, {"error": {"a": 1, "b": [2]}}):
        assert fenced(client, "call.publish", run_id, 1, **told) == 1
    assert claim(client, run_id)["value"] == {"a": 1, "b": [2]}


def test_nobody_publishes_or_renews_what_nobody_claimed(client: BareClient, run_id: str) -> None:
    assert fenced(client, "call.publish", run_id, 1, value=1) == 0
    assert fenced(client, "call.renew", run_id, 7) == 0
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_a_lease_that_ran_out_goes_to_the_next_claim(client: BareClient, run_id: str) -> None:
    lease = claim(client, run_id, **SHORT_LEASE)
    outlive(lease)
    assert claim(client, run_id, owner="next")["fencingNumber"] == 2
    assert fenced(client, "call.publish", run_id, 1, value="late") == 2
    assert fenced(client, "call.renew", run_id, 1) == 2
    assert fenced(client, "call.publish", run_id, 3, value="early") == 2
    assert publish(client, run_id, 2, value="right")["published"] is True
    assert claim(client, run_id)["value"] == "right"


def test_a_lease_that_ran_out_holds_until_somebody_else_has_it(client: BareClient, run_id: str) -> None:
    outlive(claim(client, run_id, **SHORT_LEASE))
    renewed = client.result("call.renew", run_id, **CALL, fencingNumber=1, **SHORT_LEASE)
    assert claim(client, run_id, owner="next")["status"] == "pending"
    outlive(renewed)
    assert publish(client, run_id, value=1)["published"] is True


def test_a_renewed_lease_lasts_longer(client: BareClient, run_id: str) -> None:
    claimed = claim(client, run_id, **SHORT_LEASE)
    renewed = client.result("call.renew", run_id, **CALL, fencingNumber=1, leaseMs=60_000)
    assert renewed["leaseExpiresAt"] >= claimed["leaseExpiresAt"] + 59_000
    outlive(claimed)
    pending = claim(client, run_id, owner="next")
    assert (pending["status"], pending["leaseExpiresAt"]) == ("pending", renewed["leaseExpiresAt"])


def test_a_publish_answers_all_who_wait_and_says_how_many(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    waiting = [wait(client, run_id) for _ in range(3)]
    waiting += [wait(client, run_id, claim=True, owner="other") for _ in range(2)]
    other = wait(client, run_id, inputHash="other", timeoutMs=500)
    assert publish(client, run_id, value=1) == {"published": True, "answered": 5}
    hit = {"status": "hit", "ok": True, "value": 1}
    assert [client.reply(asked)["result"] for asked in waiting] == [hit] * 5
    assert client.reply(other)["result"] == {"status": "timeout"}


def test_who_waits_is_answered_at_the_time_out(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    for fields in ({}, {"claim": True, "owner": "o"}):
        asked = wait(client, run_id, timeoutMs=300, **fields)
        record = client.reply_record(asked.correlation_id)
        assert record.json()["result"] == {"status": "timeout"}
        assert record.timestamp >= asked.sent.timestamp + 300
        assert client.reply(wait(client, run_id, timeoutMs=0, **fields))["result"] == {"status": "timeout"}


def test_one_may_wait_for_a_call_that_nobody_has_claimed_yet(client: BareClient, run_id: str) -> None:
    waiting = wait(client, run_id)
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    claim(client, run_id)
    publish(client, run_id, value=1)
    assert client.reply(waiting)["result"]["value"] == 1


def test_the_longest_waiting_one_gets_a_lease_that_runs_out(client: BareClient, run_id: str) -> None:
    claim(client, run_id, **SHORT_LEASE)
    for_the_result = wait(client, run_id)
    first = wait(client, run_id, claim=True, owner="first", leaseMs=2000)
    second = wait(client, run_id, claim=True, owner="second")
    record = client.reply_record(first.correlation_id)
    claimed = record.json()["result"]
    assert (claimed["status"], claimed["fencingNumber"]) == ("claimed", 2)
    assert claim(client, run_id) == {
        "status": "pending",
        "owner": "first",
        "leaseExpiresAt": claimed["leaseExpiresAt"],
    }
    assert client.reply(second)["result"]["fencingNumber"] == 3
    assert fenced(client, "call.publish", run_id, 2, value="late") == 3
    publish(client, run_id, 3, value="right")
    assert client.reply(for_the_result)["result"]["value"] == "right"


def test_the_longest_waiting_one_gets_a_call_that_is_released(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    waiting = [wait(client, run_id, claim=True, owner=str(number)) for number in range(2)]
    assert publish(client, run_id, error="e", onFailure="release") == {"published": False, "answered": 1}
    assert client.reply(waiting[0])["result"]["fencingNumber"] == 2
    publish(client, run_id, 2, value=1)
    assert client.reply(waiting[1])["result"]["status"] == "hit"


def test_who_waits_to_claim_what_nobody_has_gets_it_at_once(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    fields = {"claim": True, "owner": "me", "leaseMs": 1000}
    first = client.reply(wait(client, run_id, command_id=command_id, **fields))["result"]
    assert (first["status"], first["fencingNumber"]) == ("claimed", 1)
    assert client.reply(wait(client, run_id, command_id=command_id, **fields))["result"] == first
    outlive(first)
    second = client.reply(wait(client, run_id, **fields))["result"]
    assert second["fencingNumber"] == 2


def test_who_waits_to_claim_says_for_whom(client: BareClient, run_id: str) -> None:
    error = client.refusal("call.await", run_id, **CALL, claim=True)
    assert (error["code"], "owner" in error["message"]) == ("INVALID_COMMAND", True)
    assert client.result("call.await", run_id, **CALL, claim="yes") == {"status": "timeout"}


@pytest.mark.parametrize(
    ("type_", "fields", "named"),
    [
        ("call.claim", {**CALL}, "owner"),
        ("call.claim", {**CALL, "owner": ""}, "owner"),
        ("call.claim", {**CALL, "owner": "o" * 201}, "owner"),
        ("call.claim", {"toolId": "t", "owner": "o"}, "inputHash"),
        ("call.claim", {"inputHash": "h", "owner": "o"}, "toolId"),
        ("call.claim", {"toolId": "", "inputHash": "h", "owner": "o"}, "toolId"),
        ("call.claim", {"toolId": "t" * 513, "inputHash": "h", "owner": "o"}, "toolId"),
        ("call.renew", {**CALL}, "fencingNumber"),
        ("call.renew", {**CALL, "fencingNumber": "1"}, "fencingNumber"),
        ("call.renew", {**CALL, "fencingNumber": 0}, "fencingNumber"),
        ("call.renew", {**CALL, "fencingNumber": True}, "fencingNumber"),
        ("call.publish", {**CALL, "value": 1}, "fencingNumber"),
        ("call.await", {"toolId": "t"}, "inputHash"),
    ],
)
def test_a_wrong_field_is_named(
    client: BareClient, run_id: str, type_: str, fields: dict[str, Any], named: str
) -> None:
    error = client.refusal(type_, run_id, **fields)
    assert (error["code"], error["message"].split(":")[0]) == ("INVALID_COMMAND", named)


def test_a_result_of_up_to_a_commands_size_is_kept(client: BareClient, run_id: str) -> None:
    command_id, value = new_id(), "v" * 1_000_000
    claim(client, run_id)
    waiting = wait(client, run_id)
    publish(client, run_id, value=value)
    hit = claim(client, run_id, command_id=command_id)
    assert hit["value"] == value
    assert claim(client, run_id, command_id=command_id) == hit
    assert client.reply(waiting)["result"] == hit


def test_the_end_answers_who_waits_and_ends_claiming(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    waiting = [wait(client, run_id), wait(client, run_id, claim=True, owner="o")]
    terminal = client.result("run.cancel", run_id)["terminal"]
    assert [client.reply(asked)["result"] for asked in waiting] == [{"status": "timeout"}] * 2
    for type_, fields in (("call.claim", {"owner": "o"}), ("call.renew", {"fencingNumber": 1})):
        error = client.refusal(type_, run_id, **CALL, **fields)
        assert (error["code"], error["terminal"]) == ("RUN_ENDED", terminal)
    assert client.reply(wait(client, run_id, claim=True, owner="o"))["result"] == {"status": "timeout"}
    assert publish(client, run_id, value=1)["published"] is True
    assert client.reply(wait(client, run_id))["result"]["value"] == 1


def test_a_claim_makes_a_run_known(client: BareClient, run_id: str) -> None:
    claim(client, run_id)
    assert client.result("run.status", run_id)["status"] == "running"
    assert client.events(run_id) == []


def test_a_superseded_attempt_claims_and_renews_nothing_but_may_publish(
    client: BareClient, run_id: str
) -> None:
    client.result("run.submit", run_id, name="x")
    claim(client, run_id, attempt=1)
    for type_, fields in [
        ("call.claim", {"owner": "o", "inputHash": "other"}),
        ("call.renew", {"fencingNumber": 1}),
        ("call.await", {"claim": True, "owner": "o", "timeoutMs": LONG_MS}),
    ]:
        for stale in ({"attempt": 2}, {"instanceId": "other"}):
            error = client.refusal(type_, run_id, **{**CALL, **fields, **stale})
            assert error["code"] == "ATTEMPT_SUPERSEDED"
    assert client.result("call.await", run_id, **CALL, attempt=2) == {"status": "timeout"}
    assert publish(client, run_id, value=1, attempt=2)["published"] is True


def test_calls_are_listed_with_how_they_stand(client: BareClient, run_id: str) -> None:
    assert client.result("call.debug", run_id) == {"size": 0, "waiters": 0, "entries": []}
    leases = {}
    for digest in ("claimed", "expired", "failed", "published", "released"):
        short = SHORT_LEASE if digest == "expired" else {}
        leases[digest] = claim(client, run_id, inputHash=digest, **short)["leaseExpiresAt"]
    for digest, told in [
        ("failed", {"error": "e"}),
        ("published", {"value": 1}),
        ("released", {"error": "e", "onFailure": "release"}),
    ]:
        client.result("call.publish", run_id, toolId="tool", inputHash=digest, fencingNumber=1, **told)
    wait(client, run_id, inputHash="claimed")
    outlive({"leaseExpiresAt": leases["expired"]})
    listed = client.result("call.debug", run_id)
    assert (listed["size"], listed["waiters"], "more" in listed) == (5, 1, False)
    for entry in listed["entries"]:
        state = entry.pop("inputHash")
        expected = {"toolId": "tool", "state": state, "fencingNumber": 1}
        if state != "released":
            expected["owner"] = "me"
        if state in ("claimed", "expired"):
            expected["leaseExpiresAt"] = leases[state]
        assert entry == expected


def test_a_list_of_calls_is_cut_at_768_kib(client: BareClient, run_id: str) -> None:
    producer = client.transactional_producer()
    producer.begin_transaction()
    for number in range(1500):
        fields = {"toolId": "t" * 500, "inputHash": f"{number:04}", "owner": "o"}
        value = command("call.claim", run_id, new_id(), **fields)
        producer.produce(
            client.topic("run-commands"), value, run_id.encode(), partition=client.partition_of(run_id)
        )
    producer.commit_transaction()
    listed = client.result("call.debug", run_id)
    assert (listed["size"], listed["more"]) == (1500, True)
    assert 1000 < len(listed["entries"]) < 1500
