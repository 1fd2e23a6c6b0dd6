"""How runs begin and how they stand (spec wire 3 and 4, coordinator 9)."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.dispatches import Dispatch
from tests.run_lane import HOUR, RunLane, code, result


def test_submit_appends_running_dispatches_attempt_1_and_answers(lane: RunLane) -> None:
    reply = lane.send("run.submit", "Play/A 1", command_id="s", name="airports", params={"n": 1})
    assert result(reply) == {"runId": "Play/A 1", "instanceId": "play-a-1", "status": "running", "seq": 1}
    assert [value for _, _, value in lane.outputs] == [
        b'{"seq":1,"runId":"Play/A 1","type":"status","ts":1700000000000,"status":"running","commandId":"s"}',
        b'{"runId":"Play/A 1","instanceId":"play-a-1","attempt":1,"name":"airports","params":{"n":1},'
        b'"dispatchedAt":1700000000000,"commandId":"s"}',
    ]
    assert [topic for topic, _, _ in lane.outputs] == ["run-events", "run-dispatch"]
    assert {key for _, key, _ in lane.outputs} == {"Play/A 1"}
    assert Dispatch.model_validate(lane.values("run-dispatch", "Play/A 1")[0]).params == {"n": 1}


def test_a_dispatch_has_params_ref_instead_of_params_and_pool_and_parent_only_when_given(
    lane: RunLane,
) -> None:
    lane.send("run.submit", command_id="s", name="n", paramsRef="s3/x", pool="p", parentRunId="q")
    assert list(lane.values("run-dispatch")[0].items())[3:] == [
        ("name", "n"),
        ("paramsRef", "s3/x"),
        ("pool", "p"),
        ("parentRunId", "q"),
        ("dispatchedAt", lane.now),
        ("commandId", "s"),
    ]


def test_a_submit_without_params_dispatches_null(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    dispatch = lane.values("run-dispatch")[0]
    assert dispatch["params"] is None
    assert "paramsRef" not in dispatch


@pytest.mark.parametrize("end_first", [False, True])
def test_the_same_run_again_gets_the_stored_answer_and_dispatches_nothing(
    lane: RunLane, end_first: bool
) -> None:
    lane.log()
    first = lane.send("run.submit", name="n", params=1)
    lane.log()
    if end_first:
        lane.end()
    outputs = len(lane.outputs)
    lane.pass_time(HOUR)
    again = lane.send("run.submit", name="other", paramsRef="x")
    assert again == first
    assert again["result"]["seq"] == 2
    assert len(lane.outputs) == outputs
    assert lane.touched.writes == []


def test_a_run_that_ended_before_it_was_submitted_is_ended(lane: RunLane) -> None:
    terminal = result(lane.send("run.cancel", reason="too late"))["terminal"]
    refused = lane.send("run.submit", name="n")
    assert code(refused) == "RUN_ENDED"
    assert refused["error"]["terminal"] == terminal
    assert lane.values("run-dispatch") == []


@pytest.mark.parametrize(
    "fields", [{}, {"name": ""}, {"name": 1}, {"name": "n", "params": 0, "paramsRef": "x"}]
)
def test_a_submit_with_wrong_fields_is_refused(lane: RunLane, fields: dict[str, Any]) -> None:
    assert code(lane.send("run.submit", **fields)) == "INVALID_COMMAND"
    assert lane.state == {}


def test_the_status_of_a_running_run(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    expected = {
        "runId": "r",
        "status": "running",
        "result": None,
        "error": None,
        "totalRows": None,
        "durationMs": None,
        "latestSeq": 1,
    }
    assert result(lane.send("run.status")) == expected
    assert lane.send("run.status", command_id="w", waitMs=500, trace=1) == {"waits": True}
    lane.log()
    assert lane.late == []
    lane.pass_time(500)
    assert lane.late == [("w", {"ok": True, "result": {**expected, "latestSeq": 2, "traces": []}})]


def test_the_status_of_an_ended_run(lane: RunLane) -> None:
    lane.end(status="failed", error="E", result={"a": 1}, totalRows="many", durationMs=9, playName="p")
    assert result(lane.send("run.status")) == {
        "runId": "r",
        "status": "failed",
        "result": {"a": 1},
        "error": "E",
        "totalRows": "many",
        "durationMs": 9,
        "latestSeq": 1,
    }


@pytest.mark.parametrize(
    ("trace", "has"), [(1, True), (True, True), (0, False), (False, False), ([], False), ("no", False)]
)
def test_traces_are_there_when_asked_for(lane: RunLane, trace: Any, has: bool) -> None:
    lane.log()
    assert ("traces" in result(lane.send("run.status", trace=trace))) is has


def test_the_status_of_an_unknown_run_is_not_found_at_once(lane: RunLane) -> None:
    assert code(lane.send("run.status", waitMs=2000)) == "RUN_NOT_FOUND"


def test_a_status_waits_at_most_2_s(lane: RunLane) -> None:
    lane.log()
    lane.send("run.status", waitMs=99_999)
    lane.pass_time(2000)
    assert len(lane.late) == 1


@pytest.mark.parametrize(
    "mine",
    [
        {"instanceId": "r", "attempt": 1},
        {"attempt": 1.0},
        {"instanceId": "r"},
        {},
        {"attempt": "2", "instanceId": 5},
    ],
)
def test_the_current_attempt_may_write(lane: RunLane, mine: dict[str, Any]) -> None:
    lane.send("run.submit", name="n")
    assert result(lane.log(**mine))["seq"] == 2
    lane.end(**mine)


@pytest.mark.parametrize(
    "theirs", [{"instanceId": "r-retry-1", "attempt": 1}, {"attempt": 2}, {"attempt": 0}, {"instanceId": "q"}]
)
def test_a_superseded_attempt_may_not_write(lane: RunLane, theirs: dict[str, Any]) -> None:
    lane.send("run.submit", name="n")
    assert code(lane.log(**theirs)) == "ATTEMPT_SUPERSEDED"
    assert code(lane.send("terminal.set", status="completed", **theirs)) == "ATTEMPT_SUPERSEDED"
    assert len(lane.values("run-events")) == 1


def test_a_run_that_was_never_submitted_has_no_attempts(lane: RunLane) -> None:
    assert result(lane.log(instanceId="any", attempt=7))["seq"] == 1


def test_after_the_end_a_superseded_attempt_hears_of_the_end(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    lane.end()
    assert code(lane.log(attempt=9)) == "RUN_ENDED"
    assert result(lane.send("terminal.set", status="completed", attempt=9))["repeated"] is True
