"""What calls cost, how large their answers get, and how they go (spec coordinator 4, wire 2 and 7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.run.eviction import MAX_SWEPT_RECORDS
from agents.run.tables import CALL_RESULTS, CALLS, CHILDREN, HEADS
from tests.run_lane import MINUTE, SECOND, RunLane, code, result

CALL = {"toolId": "tool", "inputHash": "hash"}


def claim(lane: RunLane, hash_: str = "hash", **fields: Any) -> dict[str, Any]:
    """The result of a claim."""
    return result(lane.send("call.claim", **{**CALL, "inputHash": hash_, "owner": "me", **fields}))


def publish(lane: RunLane, hash_: str = "hash", fencing: int = 1, **told: Any) -> dict[str, Any]:
    """The result of a publish, by default of the value 1."""
    fields = {**CALL, "inputHash": hash_, "fencingNumber": fencing, **(told or {"value": 1})}
    return result(lane.send("call.publish", **fields))


def test_a_call_costs_the_same_however_many_the_run_has(lane: RunLane) -> None:
    costs = []
    for number in range(1000):
        touched = []
        claim(lane, f"h{number}")
        touched.append(lane.touched)
        publish(lane, f"h{number}")
        touched.append(lane.touched)
        claim(lane, f"h{number}")
        touched.append(lane.touched)
        lane.send("call.await", **{**CALL, "inputHash": f"h{number}"})
        touched.append(lane.touched)
        costs.append([(len(each.reads), len(each.writes)) for each in touched])
    assert costs[1] == costs[-1] == [(2, 2), (2, 2), (3, 0), (3, 0)]


def test_nobody_scans_for_waits_that_are_not_there(lane: RunLane) -> None:
    for number in range(50):
        lane.send("call.await", **{**CALL, "inputHash": f"other{number}"}, timeoutMs=30_000)
        lane.send("child.terminal.await", eventKey=f"k{number}", timeoutMs=30_000)
    claim(lane)
    publish(lane)
    assert len(lane.touched.reads) == 3  # The head, the call, and how many wait for it.
    lane.send("child.terminal.set", eventKey="k")
    assert len(lane.touched.reads) == 2
    lane.log()
    assert len(lane.touched.reads) == 2


def test_what_is_remembered_of_a_hit_is_small_and_makes_the_same_answer(lane: RunLane) -> None:
    names = {"toolId": "\0" * 512, "inputHash": "\x01" * 512, "owner": "\x02" * 200}
    owner = names.pop("owner")
    for told in ({"value": "v" * 500_000}, {"error": ["e" * 500_000]}):
        names["toolId"] = names["toolId"][:-1] + "x" * ("error" in told)
        assert result(lane.send("call.claim", **names, owner=owner))["status"] == "claimed"
        pending = lane.send("call.claim", **names, owner="other")
        assert pending["result"]["owner"] == owner
        assert lane.last_answer is not None
        assert len(json.dumps(lane.last_answer.body)) < 2048
        result(lane.send("call.publish", **names, fencingNumber=1, **told))
        hit = lane.send("call.claim", **names, owner=owner)
        answer = lane.last_answer
        assert hit["result"] == {"status": "hit", "ok": "value" in told, **told}
        kept = {name: value for name, value in answer.body.items() if name not in answer.by_reference}
        assert len(json.dumps([kept, answer.by_reference])) < 2048
        assert lane.recall(answer) == hit


@pytest.mark.parametrize("told", [{"value": "v" * 900_000}, {"error": "e" * 900_000}])
def test_many_who_wait_for_a_large_result_are_answered_little_by_little(
    lane: RunLane, told: dict[str, Any]
) -> None:
    claim(lane)
    asked = [f"w{number}" for number in range(20)]
    for number, command in enumerate(asked):
        claims = {"claim": True, "owner": "o"} if number % 2 else {}
        lane.send("call.await", command_id=command, **CALL, timeoutMs=30_000, **claims)
    assert publish(lane, **told) == {"published": True, "answered": 20}
    assert 1 <= len(lane.late) <= 5
    assert publish(lane, **told) == {"published": True, "answered": 0}
    lane.end()
    lane.pass_time(0)
    assert sorted(command for command, _ in lane.late) == sorted(asked)
    hit = {"status": "hit", "ok": "value" in told, **told}
    assert all(answer["result"] == hit for _, answer in lane.late)
    assert lane.record(HEADS, "r").waits == 0
    assert {name for _, name in lane.timers} == {"evict"}


def test_many_who_wait_for_a_large_child_result_are_answered_little_by_little(lane: RunLane) -> None:
    for number in range(10):
        lane.send("child.terminal.await", command_id=f"w{number}", eventKey="k", timeoutMs=30_000)
    result(lane.send("child.terminal.set", eventKey="k", data="x" * 1_000_000))
    assert 1 <= len(lane.late) <= 4
    result(lane.send("child.terminal.set", eventKey="k", data="y"))
    assert len(lane.late) == 10
    lane.pass_time(MINUTE)
    assert [answer["result"]["state"]["data"][:1] for _, answer in lane.late].count("y") >= 6
    assert len(lane.late) == 10


def test_waits_of_all_kinds_count(lane: RunLane) -> None:
    lane.log()
    claim(lane)
    for number in range(250):
        lane.send("events.list", afterSeq=1, timeoutMs=30_000)
        lane.send("run.status", waitMs=2000)
        lane.send("child.terminal.await", eventKey=f"k{number % 3}", timeoutMs=30_000)
        lane.send("call.await", **CALL, timeoutMs=30_000, claim=bool(number % 2), owner="o")
    for type_, fields in [
        ("events.list", {"afterSeq": 1}),
        ("run.status", {"waitMs": 1}),
        ("child.terminal.await", {"eventKey": "k"}),
        ("call.await", CALL),
        ("call.await", {**CALL, "claim": True, "owner": "o"}),
    ]:
        assert code(lane.send(type_, **{"timeoutMs": 1, **fields})) == "TOO_MANY_WAITS"
        assert lane.touched.writes == []
    assert lane.send("child.terminal.get", eventKey="k")["ok"]
    lane.send("run.cancel")
    assert len(lane.late) == 1000
    assert lane.record(HEADS, "r").waits == 0


def test_a_wait_on_an_unknown_run_leaves_nothing_behind(lane: RunLane) -> None:
    lane.send("call.await", **CALL, timeoutMs=1000)
    lane.send("child.terminal.await", eventKey="k", timeoutMs=1000)
    assert code(lane.send("run.status")) == "RUN_NOT_FOUND"
    assert result(lane.send("call.debug")) == {"size": 0, "waiters": 1, "entries": []}
    lane.pass_time(1000)
    assert [answer["result"] for _, answer in lane.late] == [{"status": "timeout"}, {"state": None}]
    assert lane.state == {}
    assert lane.timers == {}


def test_questions_and_refusals_store_nothing(lane: RunLane) -> None:
    for type_, fields in [
        ("call.await", CALL),
        ("call.debug", {}),
        ("child.terminal.get", {"eventKey": "k"}),
        ("call.publish", {**CALL, "fencingNumber": 1, "value": 1}),
        ("call.renew", {**CALL, "fencingNumber": 1}),
    ]:
        lane.send(type_, **fields)
    assert lane.state == {}


def test_without_a_reply_address_nobody_waits_or_gets_a_lease(lane: RunLane) -> None:
    claims = {**CALL, "claim": True, "owner": "o", "timeoutMs": 1000}
    lane.send("call.await", **claims, reply=False)
    lane.send("child.terminal.await", eventKey="k", timeoutMs=1000, reply=False)
    assert lane.state == {}
    claim(lane)
    lane.send("call.await", **claims, reply=False)
    assert {name for _, name in lane.timers} == set()


def test_a_list_of_calls_holds_768_kib_and_says_that_there_are_more(lane: RunLane) -> None:
    for number in range(1600):
        claim(lane, f"{number:04}" + "h" * 500)
    listed = result(lane.send("call.debug"))
    assert (listed["size"], listed["more"]) == (1600, True)
    assert 1200 < len(listed["entries"]) < 1600
    assert len(json.dumps(listed["entries"])) < 850_000
    assert [entry["inputHash"][:4] for entry in listed["entries"]] == [
        f"{number:04}" for number in range(len(listed["entries"]))
    ]


def test_after_the_end_what_was_begun_may_be_published_until_the_eviction(lane: RunLane) -> None:
    claim(lane)
    claim(lane, "second")
    terminal = lane.end()
    for type_, fields in [
        ("call.claim", {"owner": "me"}),
        ("call.renew", {"fencingNumber": 1}),
        ("child.terminal.set", {"eventKey": "k"}),
    ]:
        refused = lane.send(type_, **{**CALL, **fields})
        assert (code(refused), refused["error"]["terminal"]) == ("RUN_ENDED", terminal)
    assert result(lane.send("call.await", **CALL, timeoutMs=1000)) == {"status": "timeout"}
    assert publish(lane, value=2) == {"published": True, "answered": 0}
    assert result(lane.send("call.await", **CALL, timeoutMs=1000))["value"] == 2
    lane.evict()
    assert code(lane.send("call.publish", **CALL, fencingNumber=1, value=2)) == "RUN_ENDED"
    assert code(lane.send("call.claim", **CALL, owner="me")) == "RUN_ENDED"
    assert result(lane.send("call.await", **CALL, claim=True, owner="o")) == {"status": "timeout"}
    assert result(lane.send("call.debug")) == {"size": 0, "waiters": 0, "entries": []}


def test_an_eviction_goes_in_steps_and_is_complete_from_the_first_on(lane: RunLane) -> None:
    total = 10_000
    for number in range(total):
        claim(lane, f"h{number}", run="r")
        if number % 3:
            publish(lane, f"h{number}")
    for number in range(700):
        result(lane.send("child.terminal.set", eventKey=f"k{number}", data=number))
    lane.send("events.list", "r2", timeoutMs=30_000)
    claim_of_another = lane.send("call.claim", "r\0", **CALL, owner="me")
    lane.end()
    result(lane.send("run.finish"))
    lane.pass_time(MINUTE - 1)
    assert len(lane.keys(CALLS, "r")) == total
    payload = None
    steps, name = 0, "evict"
    lane.now += 1
    while True:
        lane.timers.pop(("r", name), None)
        lane.fire("r", name, payload)
        steps += 1
        assert len(lane.touched.writes) <= 2 * MAX_SWEPT_RECORDS + 510
        assert len(lane.touched.reads) <= MAX_SWEPT_RECORDS + 3
        assert result(lane.send("call.await", **CALL))["status"] == "timeout"
        assert result(lane.send("call.debug")) == {"size": 0, "waiters": 0, "entries": []}
        assert result(lane.send("child.terminal.get", eventKey="k699")) == {"state": None}
        assert code(lane.send("call.claim", **CALL, owner="me")) == "RUN_ENDED"
        if ("r", "sweep") not in lane.timers:
            break
        name, payload = "sweep", json.loads(lane.timers["r", "sweep"][1])
    assert steps >= total / MAX_SWEPT_RECORDS
    assert lane.keys(CALLS, "r") == lane.keys(CALL_RESULTS, "r") == lane.keys(CHILDREN, "r") == []
    assert claim_of_another["ok"]
    assert len(lane.keys(CALLS, "r\0")) == 1


def test_an_eviction_reads_no_more_than_fits_into_a_step(lane: RunLane) -> None:
    for number in range(20):
        result(lane.send("child.terminal.set", eventKey=f"k{number}", data="x" * 1_000_000))
    lane.end()
    lane.fire("r", "evict", None)
    assert 1 <= 20 - len(lane.keys(CHILDREN, "r")) <= 6
    lane.pass_time(0)
    assert lane.keys(CHILDREN, "r") == []


def test_a_lease_that_nobody_waits_for_needs_no_timer(lane: RunLane) -> None:
    claim(lane, leaseMs=1000)
    assert lane.timers == {}
    lane.pass_time(MINUTE)
    assert claim(lane)["fencingNumber"] == 2
    assert claim(lane)["status"] == "pending"


def test_who_holds_a_lease_that_ran_out_may_publish_until_another_one_holds(lane: RunLane) -> None:
    claim(lane, leaseMs=1000)
    lane.pass_time(MINUTE)
    assert result(lane.send("call.renew", **CALL, fencingNumber=1, leaseMs=1000)) == {
        "leaseExpiresAt": lane.now + SECOND
    }
    lane.pass_time(MINUTE)
    claim(lane)
    for type_, told in (("call.publish", {"value": 1}), ("call.renew", {})):
        refused = lane.send(type_, **CALL, fencingNumber=1, **told)
        assert (code(refused), refused["error"]["fencingNumber"]) == ("CALL_FENCED", 2)
    assert publish(lane, fencing=2) == {"published": True, "answered": 0}


def test_a_lease_passes_to_the_longest_waiting_one_that_would_take_it(lane: RunLane) -> None:
    claim(lane, leaseMs=1000)
    lane.send("call.await", command_id="result", **CALL, timeoutMs=30_000)
    for owner in ("a", "b", "c"):
        fields = {"claim": True, "owner": owner, "leaseMs": 2000}
        lane.send("call.await", command_id=owner, **CALL, timeoutMs=30_000, **fields)
    lane.pass_time(999)
    assert lane.late == []
    lane.pass_time(1)
    claimed = {"status": "claimed", "fencingNumber": 2, "leaseExpiresAt": lane.now + 2000}
    assert lane.late == [("a", {"ok": True, "result": claimed})]
    released = publish(lane, fencing=2, error="e", onFailure="release")
    assert released == {"published": False, "answered": 1}
    assert lane.late[1][0] == "b"
    assert lane.late[1][1]["result"]["fencingNumber"] == 3
    assert publish(lane, fencing=3, value=7) == {"published": True, "answered": 2}
    assert [(command, reply["result"]["value"]) for command, reply in lane.late[2:]] == [
        ("result", 7),
        ("c", 7),
    ]
    assert lane.timers == {}
