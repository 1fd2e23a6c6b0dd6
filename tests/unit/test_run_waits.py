"""Questions that wait (spec wire 4)."""

from __future__ import annotations

from typing import Any

import pytest

from agents.run.tables import HEADS, WAITS
from tests.run_lane import MINUTE, SECOND, RunLane, code, result


def test_a_list_that_waits_is_answered_by_the_next_event(lane: RunLane) -> None:
    lane.log()
    assert lane.send("events.list", command_id="w", afterSeq=1, timeoutMs=30_000) == {"waits": True}
    lane.pass_time(SECOND)
    assert lane.late == []
    lane.log("two")
    assert lane.late == [
        (
            "w",
            {
                "ok": True,
                "result": {"events": lane.values("run-events")[1:], "latestSeq": 2, "firstSeq": 1},
            },
        )
    ]
    lane.pass_time(MINUTE)
    assert len(lane.late) == 1
    assert lane.timers == {}
    assert lane.keys(WAITS) == []


def test_a_wait_for_a_later_seq_is_not_answered_by_an_earlier_one(lane: RunLane) -> None:
    for after in (0, 1, 2, 1):
        lane.send("events.list", command_id=f"after{after}", afterSeq=after, timeoutMs=1000)
    lane.log()
    assert [command for command, _ in lane.late] == ["after0"]
    lane.send("run.submit", name="n")
    assert [command for command, _ in lane.late] == ["after0", "after1", "after1"]
    assert [event["seq"] for event in lane.late[1][1]["result"]["events"]] == [2]
    assert lane.record(HEADS, "r").waits == 1


def test_an_event_reads_no_more_waits_than_it_answers_but_one(lane: RunLane) -> None:
    for after in range(50):
        lane.send("events.list", afterSeq=100 + after, timeoutMs=1000)
    lane.log()
    assert len(lane.touched.reads) == 3  # The head, how many wait, and the first of them.


@pytest.mark.parametrize("timeout", [0, -1, None, "1000", True])
def test_without_a_time_a_list_answers_at_once(lane: RunLane, timeout: Any) -> None:
    assert lane.list(timeoutMs=timeout)["events"] == []


def test_a_list_that_has_something_does_not_wait(lane: RunLane) -> None:
    lane.log()
    assert len(lane.list(timeoutMs=1000)["events"]) == 1


@pytest.mark.parametrize(("asked", "waited"), [(1000, 1000), (30_000, 30_000), (99_999, 30_000), (0.5, None)])
def test_at_the_time_out_there_is_what_there_is(lane: RunLane, asked: float, waited: int | None) -> None:
    lane.log()
    reply = lane.send("events.list", command_id="w", afterSeq=1, timeoutMs=asked)
    if waited is None:
        assert reply["ok"] is True
        return
    lane.pass_time(waited - 1)
    assert lane.late == []
    lane.pass_time(1)
    assert lane.late == [("w", {"ok": True, "result": {"events": [], "latestSeq": 1, "firstSeq": 1}})]
    assert lane.record(HEADS, "r").waits == 0
    assert lane.keys(WAITS) == []


def test_a_wait_on_an_unknown_run_leaves_nothing_behind(lane: RunLane) -> None:
    lane.send("events.list", command_id="a", timeoutMs=1000)
    lane.send("events.list", command_id="b", timeoutMs=2000)
    assert code(lane.send("run.status")) == "RUN_NOT_FOUND"
    assert code(lane.send("run.finish")) == "RUN_NOT_FOUND"
    assert result(lane.send("terminal.get"))["terminal"] is None
    lane.pass_time(1000)
    assert lane.record(HEADS, "r").waits == 1
    lane.pass_time(1000)
    nothing = {"ok": True, "result": {"events": [], "latestSeq": 0, "firstSeq": 0}}
    assert lane.late == [("a", nothing), ("b", nothing)]
    assert lane.state == {}


def test_a_run_that_appears_answers_who_waited_for_it(lane: RunLane) -> None:
    lane.send("events.list", command_id="w", timeoutMs=1000)
    lane.send("run.submit", command_id="s", name="n")
    assert [event["commandId"] for event in lane.late[0][1]["result"]["events"]] == ["s"]
    lane.pass_time(1000)
    assert lane.record(HEADS, "r").status == "running"


def test_the_end_answers_every_wait(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    lane.send("events.list", command_id="next", afterSeq=1, timeoutMs=30_000)
    lane.send("events.list", command_id="far", afterSeq=99, timeoutMs=30_000)
    lane.send("run.status", command_id="end", waitMs=2000)
    lane.log()
    lane.end(result=[1], totalRows=3, durationMs=4.5)
    answers = dict(lane.late)
    assert [command for command, _ in lane.late] == ["next", "far", "end"]
    assert answers["far"]["result"] == {"events": [], "latestSeq": 3, "firstSeq": 1}
    assert answers["end"] == lane.send("run.status")
    assert answers["end"]["result"]["result"] == [1]
    assert lane.keys(WAITS) == []
    assert {name for _, name in lane.timers} == {"evict"}
    assert lane.record(HEADS, "r").waits == 0


def test_on_an_ended_run_nothing_waits(lane: RunLane) -> None:
    lane.end()
    assert lane.list(afterSeq=1, timeoutMs=1000)["events"] == []
    assert result(lane.send("run.status", waitMs=1000))["status"] == "completed"
    lane.evict()
    assert lane.list(timeoutMs=1000)["latestSeq"] == 1


def test_a_wait_without_a_reply_address_is_dropped(lane: RunLane) -> None:
    lane.send("events.list", timeoutMs=1000, reply=False)
    assert lane.state == {}
    lane.send("run.submit", name="n")
    lane.send("run.status", waitMs=1000, reply=False)
    assert lane.keys(WAITS) == []
    assert lane.timers == {}


def test_at_most_1000_commands_wait_on_a_run(lane: RunLane) -> None:
    lane.log()
    for n in range(1000):
        kind = {"afterSeq": 1, "timeoutMs": 30_000} if n % 2 else {"waitMs": 2000}
        waiting = lane.send("events.list" if n % 2 else "run.status", command_id="same", **kind)
        assert waiting == {"waits": True}
    assert code(lane.send("events.list", afterSeq=1, timeoutMs=1)) == "TOO_MANY_WAITS"
    assert code(lane.send("run.status", waitMs=1)) == "TOO_MANY_WAITS"
    assert lane.send("events.list", "another", timeoutMs=1) == {"waits": True}
    lane.pass_time(2000)
    assert len(lane.late) == 501
    assert lane.send("run.status", waitMs=1) == {"waits": True}
    lane.log()
    assert len(lane.late) == 1001


@pytest.mark.parametrize("kind", ["run.status", "events.list"])
def test_many_waits_for_a_large_answer_are_answered_little_by_little_and_once(
    lane: RunLane, kind: str
) -> None:
    lane.log()
    fields = {"waitMs": 2000} if kind == "run.status" else {"afterSeq": 1, "timeoutMs": 30_000}
    asked = [lane.send(kind, command_id=f"w{number}", **fields) and f"w{number}" for number in range(20)]
    lane.send("terminal.set", status="completed", result="x" * 900_000)
    at_once = len(lane.late)
    assert 1 <= at_once <= 5
    lane.log("refused, since the run has ended")
    lane.pass_time(0)
    assert sorted(command for command, _ in lane.late) == sorted(asked)
    for _, answer in lane.late:
        if kind == "run.status":
            assert (answer["result"]["status"], len(answer["result"]["result"])) == ("completed", 900_000)
        else:
            (event,) = answer["result"]["events"]
            assert (event["seq"], event["type"]) == (2, "terminal")
    assert lane.keys(WAITS) == []
    assert lane.record(HEADS, "r").waits == 0
    lane.pass_time(MINUTE)
    assert len(lane.late) == 20


def test_a_wait_that_was_put_off_gets_its_own_event_though_others_follow(lane: RunLane) -> None:
    asked = [
        lane.send("events.list", command_id=f"w{number}", timeoutMs=30_000) and f"w{number}"
        for number in range(10)
    ]
    lane.log("x" * 1_000_000)
    lane.log("two")
    lane.pass_time(0)
    assert sorted(command for command, _ in lane.late) == sorted(asked)
    for _, answer in lane.late:
        (event,) = answer["result"]["events"]
        assert event["seq"] == 1
    assert [answer["result"].get("more", False) for _, answer in lane.late].count(True) >= 5
    assert lane.record(HEADS, "r").waits == 0
