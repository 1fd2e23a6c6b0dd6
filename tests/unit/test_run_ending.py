"""How runs end (spec wire 3 and 4, coordinator 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from agents.run.tables import TERMINALS
from schemas.events import RunEvent
from schemas.terminals import TerminalState
from tests.run_lane import SECOND, RunLane, code, result

TERMINAL_FIELDS = [
    "runId",
    "seq",
    "status",
    "result",
    "error",
    "totalRows",
    "durationMs",
    "playName",
    "completedAt",
    "commandId",
]


def test_an_end_is_an_event_and_a_state_with_all_fields(lane: RunLane) -> None:
    lane.log()
    reply = lane.send("terminal.set", command_id="t", status="completed", completedAt=5)
    event = (
        b'{"seq":2,"runId":"r","type":"terminal","ts":5,"status":"completed","result":null,"error":null,'
        b'"totalRows":null,"durationMs":null,"playName":null,"commandId":"t"}'
    )
    state = (
        b'{"runId":"r","seq":2,"status":"completed","result":null,"error":null,"totalRows":null,'
        b'"durationMs":null,"playName":null,"completedAt":5,"commandId":"t"}'
    )
    assert lane.outputs[1:] == [("run-events", "r", event), ("run-terminals", "r", state)]
    assert lane.state[TERMINALS.key("r")] == state
    assert list(json.loads(state)) == TERMINAL_FIELDS
    assert result(reply) == {"terminal": json.loads(state), "repeated": False}
    assert result(lane.send("terminal.get")) == {"terminal": json.loads(state)}
    TypeAdapter(RunEvent).validate_json(event)
    TerminalState.model_validate_json(state)


def test_completed_at_is_now_unless_given(lane: RunLane) -> None:
    terminal = lane.end(completedAt="soon")
    assert terminal["completedAt"] == lane.now
    assert lane.values("run-events")[0]["ts"] == lane.now


def test_fields_of_an_end_of_the_wrong_type_are_null(lane: RunLane) -> None:
    terminal = lane.end(error=1, playName=["p"], totalRows={"any": 1}, durationMs="any", extra=1)
    assert terminal == {
        **dict.fromkeys(TERMINAL_FIELDS),
        "runId": "r",
        "seq": 1,
        "status": "completed",
        "totalRows": {"any": 1},
        "durationMs": "any",
        "completedAt": lane.now,
        "commandId": "c1",
    }


@pytest.mark.parametrize("status", [None, "running", "COMPLETED", 1, ""])
def test_a_run_ends_as_one_of_three(lane: RunLane, status: Any) -> None:
    assert code(lane.send("terminal.set", status=status)) == "INVALID_COMMAND"
    assert lane.state == {}


FIRST = {
    "status": "completed",
    "result": {"a": [1, {"b": None}], "c": 2.0},
    "error": None,
    "totalRows": 1,
    "playName": "p",
}


@pytest.mark.parametrize(
    "again",
    [
        FIRST,
        {
            "playName": "p",
            "totalRows": 1.0,
            "result": {"c": 2, "a": [1.0, {"b": None}]},
            "status": "completed",
        },
        {**FIRST, "completedAt": 1, "durationMs": None, "error": 5},
    ],
)
def test_the_same_end_again_is_answered_as_done(lane: RunLane, again: dict[str, Any]) -> None:
    terminal = lane.end(**FIRST)
    outputs = len(lane.outputs)
    lane.pass_time(SECOND)
    assert result(lane.send("terminal.set", **again)) == {"terminal": terminal, "repeated": True}
    assert len(lane.outputs) == outputs
    assert lane.touched.writes == []


@pytest.mark.parametrize(
    "change",
    [
        {"status": "failed"},
        {"result": None},
        {"result": {"a": [True, {"b": None}], "c": 2.0}},
        {"result": {"a": [1, {}], "c": 2.0}},
        {"result": {"a": [{"b": None}, 1], "c": 2.0}},
        {"error": ""},
        {"totalRows": True},
        {"totalRows": "1"},
        {"durationMs": 0},
        {"playName": "q"},
    ],
)
def test_a_different_end_is_refused_with_the_stored_one(lane: RunLane, change: dict[str, Any]) -> None:
    terminal = lane.end(**FIRST)
    refused = lane.send("terminal.set", **{**FIRST, **change})
    assert code(refused) == "RUN_ENDED"
    assert refused["error"]["terminal"] == terminal
    assert len(lane.outputs) == 2


def test_no_event_follows_the_end(lane: RunLane) -> None:
    terminal = lane.end()
    refused = lane.log()
    assert code(refused) == "RUN_ENDED"
    assert refused["error"]["terminal"] == terminal
    assert lane.values("run-events")[-1]["type"] == "terminal"


def test_cancel_ends_a_running_run(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    answer = result(lane.send("run.cancel", command_id="x", reason="enough"))
    assert answer["status"] == "cancelled"
    assert answer["terminal"] == {
        **dict.fromkeys(TERMINAL_FIELDS),
        "runId": "r",
        "seq": 2,
        "status": "cancelled",
        "error": "enough",
        "completedAt": lane.now,
        "commandId": "x",
    }
    assert lane.values("run-terminals") == [answer["terminal"]]
    assert lane.values("run-events")[-1]["type"] == "terminal"


def test_cancel_of_an_unknown_run_is_stored(lane: RunLane) -> None:
    assert result(lane.send("run.cancel"))["status"] == "cancelled"
    assert result(lane.send("run.status"))["status"] == "cancelled"


def test_cancel_of_an_ended_run_answers_its_end(lane: RunLane) -> None:
    terminal = lane.end(status="failed")
    assert result(lane.send("run.cancel", reason="x")) == {"status": "failed", "terminal": terminal}
    assert len(lane.values("run-events")) == 1
