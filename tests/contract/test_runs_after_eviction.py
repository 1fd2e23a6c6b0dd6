"""Wire contract, section 4: what is left of a run when it is evicted.

The run is finished when the suite starts (`finished_run`), so that little is left of its 60 seconds here.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.bare_client import BareClient
from tests.contract.conftest import FinishedRun
from tests.contract.topic_reader import TopicReader

EVENT = {"type": "log", "line": "hello"}
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def evicted(client: BareClient, finished_run: FinishedRun) -> FinishedRun:
    """The finished run, when it is evicted."""
    deadline = time.monotonic() + PATIENCE_S
    while client.result("terminal.get", finished_run.run_id)["terminal"] is not None:
        assert time.monotonic() < deadline, f"the run was not evicted in {PATIENCE_S:.0f} s"
        time.sleep(0.25)
    return finished_run


def test_a_finished_run_is_evicted_at_the_time_that_was_said(
    client: BareClient, evicted: FinishedRun
) -> None:
    asked = client.ask("run.status", evicted.run_id)
    client.reply(asked)
    assert asked.sent.timestamp >= evicted.evicts_at


@pytest.mark.parametrize(
    "question", ["terminal.get", "run.status", "events.list", "trace.list", "instance.get"]
)
def test_what_an_evicted_run_answers(client: BareClient, evicted: FinishedRun, question: str) -> None:
    result = client.result(question, evicted.run_id)
    assert (
        result
        == {
            "terminal.get": {"terminal": None},
            "trace.list": {"traces": []},
            "instance.get": {"instance": None},
            "events.list": {"events": [], "latestSeq": evicted.latest_seq, "firstSeq": 0},
            "run.status": {
                "runId": evicted.run_id,
                "status": "failed",
                "result": None,
                "error": None,
                "totalRows": None,
                "durationMs": None,
                "latestSeq": evicted.latest_seq,
            },
        }[question]
    )


def test_the_sessions_of_an_evicted_run_are_gone(client: BareClient, evicted: FinishedRun) -> None:
    assert client.refusal("sessions.get", evicted.run_id)["code"] == "SESSIONS_NOT_FOUND"


def test_a_wait_on_an_evicted_run_is_answered_at_once(client: BareClient, evicted: FinishedRun) -> None:
    result = client.result("events.list", evicted.run_id, afterSeq=evicted.latest_seq, timeoutMs=30_000)
    assert result["events"] == []


@pytest.mark.parametrize(
    "write",
    [
        {"type_": "events.append", "event": EVENT},
        {"type_": "run.submit", "name": "x"},
        {"type_": "terminal.set", "status": "failed", "error": "the end"},
        {"type_": "terminal.set", "status": "completed"},
        {"type_": "run.cancel"},
        {"type_": "run.finish"},
        {"type_": "retry.put", "params": None},
        {"type_": "retry.claim", "maxAttempts": 1},
        {"type_": "launch.put", "params": None, "sessions": []},
        {"type_": "sessions.put", "sessions": []},
        {"type_": "instance.put", "instanceId": "i"},
        {"type_": "trace.add", "trace": {"source": "coordinator", "phase": "p", "ts": 1, "ms": 2}},
        {"type_": "run.signal"},
    ],
    ids=lambda write: write["type_"],
)
def test_every_write_to_an_evicted_run_is_refused_without_the_end(
    client: BareClient, evicted: FinishedRun, write: dict[str, Any]
) -> None:
    error = client.refusal(run_id=evicted.run_id, **write)
    assert error["code"] == "RUN_ENDED"
    assert "terminal" not in error


@pytest.mark.parametrize("which", ["submit_id", "end_id"])
def test_repeats_to_an_evicted_run_are_refused_too(
    client: BareClient, evicted: FinishedRun, which: str
) -> None:
    command_id = getattr(evicted, which)
    for fields in ({"type_": "run.submit", "name": "x"}, {"type_": "terminal.set", "status": "failed"}):
        error = client.refusal(run_id=evicted.run_id, command_id=command_id, **fields)
        assert error["code"] == "RUN_ENDED"
        assert "terminal" not in error


def test_seq_does_not_start_again_and_what_was_published_stays(
    client: BareClient, evicted: FinishedRun
) -> None:
    client.refusal("events.append", evicted.run_id, event=EVENT)
    assert [event["seq"] for event in client.events(evicted.run_id)] == list(range(1, evicted.latest_seq + 1))
    assert client.terminal(evicted.run_id)["error"] == "the end"


def test_the_changelog_holds_nothing_of_an_evicted_run_but_its_head(
    client: BareClient, broker: str, evicted: FinishedRun
) -> None:
    run_id = evicted.run_id.encode()
    reader = TopicReader(broker, {"state-changelog": client.topic("state-changelog")})
    try:
        reader.catch_up("state-changelog")
        records = reader.records("state-changelog")
    finally:
        reader.close()
    state = {record.key or b"": record.value for record in records if run_id + b"\0" in (record.key or b"")}
    tables = {key.split(b"\0")[0].decode() for key, value in state.items() if value is not None}
    assert "run.head" in tables
    assert not {table for table in tables if table.startswith("run.")} - {"run.head"}
