"""What becomes of runs after their end, and what answers leave behind (spec wire 1, 3 and 4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents.run.tables import HEADS
from agents.run.waits import OF_EVENTS
from tests.run_lane import DAY, HOUR, MINUTE, RunLane, code, result


def test_finish_needs_an_end(lane: RunLane) -> None:
    assert code(lane.send("run.finish")) == "RUN_NOT_FOUND"
    lane.log()
    assert code(lane.send("run.finish")) == "RUN_NOT_ENDED"


def test_finish_evicts_60_s_later_and_again_says_the_same(lane: RunLane) -> None:
    terminal = lane.end()
    lane.pass_time(HOUR)
    at = lane.now + MINUTE
    assert result(lane.send("run.finish")) == {"evictsAt": at}
    lane.pass_time(MINUTE - 1)
    assert result(lane.send("run.finish")) == {"evictsAt": at}
    assert result(lane.send("terminal.get"))["terminal"] == terminal
    assert lane.forgotten == []
    lane.pass_time(1)
    assert result(lane.send("terminal.get"))["terminal"] is None
    assert lane.forgotten == ["r"]


def test_a_run_is_evicted_24_h_after_its_end(lane: RunLane) -> None:
    lane.end()
    lane.pass_time(DAY - 1)
    assert lane.forgotten == []
    lane.pass_time(1)
    assert lane.forgotten == ["r"]


def test_an_evicted_run_is_only_a_status_and_a_seq(lane: RunLane) -> None:
    for _ in range(510):
        lane.log()
    lane.end(status="failed", result=1)
    at = lane.now
    lane.evict()
    assert list(lane.state) == [HEADS.key("r")]
    assert lane.state[HEADS.key("r")] == (
        b'{"v":1,"status":"failed","latest_seq":511,"ended_at":%d,"evicted":true}' % at
    )
    assert lane.list() == {"events": [], "latestSeq": 511, "firstSeq": 0}
    assert lane.list(afterSeq=500) == {"events": [], "latestSeq": 511, "firstSeq": 0}
    status = result(lane.send("run.status"))
    assert (status["status"], status["latestSeq"], status["result"]) == ("failed", 511, None)


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        ("run.submit", {"name": "n"}),
        ("run.cancel", {}),
        ("run.finish", {}),
        ("events.append", {"event": {"type": "log", "line": "l"}}),
        ("terminal.set", {"status": "completed"}),
    ],
)
@pytest.mark.parametrize("submitted", [False, True])
def test_every_write_on_an_evicted_run_is_refused_without_terminal(
    lane: RunLane, command: str, fields: dict[str, Any], submitted: bool
) -> None:
    if submitted:
        lane.send("run.submit", name="n")
    lane.end()
    lane.evict()
    lane.pass_time(7 * DAY - 1)
    refused = lane.send(command, **fields)
    assert code(refused) == "RUN_ENDED"
    assert "terminal" not in refused["error"]
    assert lane.touched.writes == []


def test_7_days_after_its_eviction_a_run_is_forgotten(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    lane.end()
    lane.evict()
    lane.pass_time(7 * DAY)
    assert lane.state == {}
    assert lane.timers == {}
    assert result(lane.send("run.submit", name="n"))["seq"] == 1
    assert len(lane.values("run-dispatch")) == 2


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("evict", None),
        ("forget", None),
        ("unheard-of", None),
        ("wait:7", [OF_EVENTS, 1, 7]),
        ("lease:7", ["tool", "hash"]),
        ("sweep", ["run.call"]),
    ],
)
def test_a_timer_without_meaning_does_nothing(lane: RunLane, name: str, payload: Any) -> None:
    lane.log()
    before = dict(lane.state)
    for run in ("r", "unknown"):
        lane.fire(run, name, payload)
    assert lane.state == before
    assert lane.forgotten == []
    assert lane.late == []


def test_answers_hold_the_terminal_state_by_reference(lane: RunLane) -> None:
    big = "x" * 100_000
    replies = [
        lane.send("terminal.set", status="completed", result=big),
        lane.send("terminal.set", status="completed", result=big),
        lane.send("terminal.set", status="failed"),
        lane.send("run.cancel"),
        lane.log(),
    ]
    for command, fields, reply in [
        ("terminal.set", {"status": "completed", "result": big}, replies[1]),
        ("terminal.set", {"status": "failed"}, replies[2]),
        ("run.cancel", {}, replies[3]),
        ("events.append", {"event": {"type": "log", "line": "l"}}, replies[4]),
    ]:
        assert lane.send(command, **fields) == reply
        answer = lane.last_answer
        assert answer is not None
        assert answer.by_reference == {"terminal": "terminal"}
        assert lane.recall(answer) == reply
        kept = {name: value for name, value in answer.body.items() if name not in answer.by_reference}
        assert len(json.dumps(kept)) < 2048


def test_what_was_evicted_is_recalled_as_null(lane: RunLane) -> None:
    lane.end()
    answer = lane.last_answer
    assert answer is not None
    lane.evict()
    assert lane.recall(answer) == {"ok": True, "result": {"terminal": None, "repeated": False}}


def test_nothing_else_is_held_by_reference(lane: RunLane) -> None:
    lane.end()
    with pytest.raises(ValueError, match="events"):
        lane.family.machine.recall("events", "r", lane)


def test_every_answer_of_a_write_is_small_enough_to_remember(lane: RunLane) -> None:
    run = "\1" * 512
    for command, fields in [
        ("run.submit", {"name": "n", "params": "p" * 9000}),
        ("events.append", {"event": {"type": "log", "line": "l" * 9000}}),
        ("events.append", {"event": {"type": "log", "line": "l"}, "attempt": 2}),
        ("run.finish", {}),
        ("terminal.set", {"status": "failed", "error": "e" * 9000}),
        ("run.finish", {}),
    ]:
        lane.send(command, run, **fields)
        answer = lane.last_answer
        assert answer is not None
        kept = {name: value for name, value in answer.body.items() if name not in answer.by_reference}
        assert len(json.dumps(kept)) < 2048
