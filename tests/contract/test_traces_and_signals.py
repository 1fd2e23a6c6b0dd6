"""Wire contract, sections 7 and 8: traces, and what signals become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.bare_client import BareClient, new_id

TRACE = {"source": "coordinator", "phase": "submit", "ts": 5, "ms": 1.5}


def test_a_trace_has_exactly_the_fields_that_were_sent_and_the_run(client: BareClient, run_id: str) -> None:
    trace = {**TRACE, "graphHash": "g", "extra": {"a": [None, 1.0]}}
    assert client.result("trace.add", run_id, trace=trace) == {"count": 1}
    assert client.result("trace.add", run_id, trace={**TRACE, "runId": run_id, "ts": 4}) == {"count": 2}
    first, second = {**TRACE, "runId": run_id, "ts": 4}, {**trace, "runId": run_id}
    assert client.result("trace.list", run_id) == {"traces": [first, second]}


def test_a_trace_makes_the_run_known_and_no_event(client: BareClient, run_id: str) -> None:
    client.result("trace.add", run_id, trace=TRACE)
    status = client.result("run.status", run_id)
    assert (status["status"], status["latestSeq"]) == ("running", 0)


@pytest.mark.parametrize(
    "trace",
    [
        None,
        "x",
        {},
        {**TRACE, "source": "worker"},
        {**TRACE, "phase": None},
        {**TRACE, "ts": "5"},
        {**TRACE, "ms": True},
        {**TRACE, "runId": "another"},
        {**TRACE, "runId": 5},
        {**TRACE, "note": "x" * 33_000},
    ],
    ids=lambda trace: json.dumps(trace)[:60],
)
def test_a_wrong_trace_is_refused(client: BareClient, run_id: str, trace: Any) -> None:
    assert client.refusal("trace.add", run_id, trace=trace)["code"] == "INVALID_TRACE"
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    assert client.result("trace.list", run_id) == {"traces": []}


def test_the_newest_200_are_kept_and_sorted_by_their_time(client: BareClient, run_id: str) -> None:
    sent = [{**TRACE, "ts": (number * 7) % 11, "phase": str(number)} for number in range(205)]
    for trace in sent[:-1]:
        client.post("trace.add", run_id, trace=trace)
    assert client.result("trace.add", run_id, trace=sent[-1]) == {"count": 200}
    expected = sorted(({**trace, "runId": run_id} for trace in sent[-200:]), key=lambda trace: trace["ts"])
    assert client.result("trace.list", run_id) == {"traces": expected}
    assert client.result("run.status", run_id, trace=1)["traces"] == expected


def test_a_list_of_traces_is_cut_at_768_kib(client: BareClient, run_id: str) -> None:
    for number in range(30):
        client.post("trace.add", run_id, trace={**TRACE, "ts": 100 - number, "note": "x" * 32_000})
    listed = client.result("trace.list", run_id)
    assert listed["more"] is True
    assert [trace["ts"] for trace in listed["traces"]] == list(range(71, 71 + 24))
    client.result("terminal.set", run_id, status="completed", result="x" * 900_000)
    status = client.result("run.status", run_id, trace=1)
    assert status["more"] is True
    assert 0 < len(status["traces"]) < 24
    assert len(status["result"]) == 900_000


def test_status_has_traces_only_when_asked_for(client: BareClient, run_id: str) -> None:
    client.result("trace.add", run_id, trace=TRACE)
    assert "traces" not in client.result("run.status", run_id)
    assert client.result("run.status", run_id, trace=1)["traces"] == [{**TRACE, "runId": run_id}]


def test_a_status_that_waited_has_the_traces_of_then(client: BareClient, run_id: str) -> None:
    client.result("trace.add", run_id, trace=TRACE)
    asked = client.ask("run.status", run_id, trace=1, waitMs=2000)
    client.result("trace.add", run_id, trace={**TRACE, "ts": 9})
    client.result("run.cancel", run_id)
    result = client.reply(asked)["result"]
    assert result["status"] == "cancelled"
    assert [trace["ts"] for trace in result["traces"]] == [5, 9]


def test_traces_are_taken_after_the_end(client: BareClient, run_id: str) -> None:
    client.result("run.cancel", run_id)
    assert client.result("trace.add", run_id, trace=TRACE) == {"count": 1}


SIGNALS: dict[str, tuple[dict[str, Any], str, str | None]] = {
    "a key alone": ({"eventKey": " k/1 "}, "integration_event_k_1", "k/1"),
    "the other name of the key": ({"eventKey": 5, "event_key": "k"}, "integration_event_k", "k"),
    "an integration event with a key": (
        {"signalType": "integration_event", "eventKey": "k"},
        "integration_event",
        "k",
    ),
    "an integration event without a key": ({"signalType": "integration_event"}, "integration_event", None),
    "nothing": ({}, "integration_event", None),
    "an empty key": ({"eventKey": "  "}, "integration_event", None),
    "a type": ({"signalType": " approved by: Zoë! "}, "approved_by_Zo", None),
    "a type with a key": ({"signalType": "approved", "eventKey": "k"}, "approved", None),
    "a type of which nothing is left": ({"signalType": "_!é!_"}, "deepline_event", None),
    "a long type": ({"signalType": "x" * 300}, "x" * 100, None),
}


@pytest.mark.parametrize("what", SIGNALS)
def test_the_type_of_a_signal_and_where_it_is_stored(client: BareClient, run_id: str, what: str) -> None:
    fields, type_, key = SIGNALS[what]
    payload = {"a": [1, None]}
    asked = client.ask("run.signal", run_id, payload=payload, **fields)
    result = client.reply(asked)["result"]
    assert result == {"signalType": type_, "stored": key is not None}
    state = client.result("child.terminal.get", run_id, eventKey=key or type_)["state"]
    assert state["data"] == payload
    assert state["storedAt"] >= asked.sent.timestamp


def test_a_signal_answers_who_waits_for_it(client: BareClient, run_id: str) -> None:
    asked = client.ask("child.terminal.await", run_id, eventKey="child-1", timeoutMs=30_000)
    client.result("run.signal", run_id, eventKey="child-1", payload="done")
    assert client.reply(asked)["result"]["state"]["data"] == "done"


def test_a_signal_makes_the_run_known_and_is_refused_after_the_end(client: BareClient, run_id: str) -> None:
    client.result("run.signal", run_id)
    assert client.result("run.status", run_id)["status"] == "running"
    client.result("run.cancel", run_id)
    assert client.refusal("run.signal", run_id)["code"] == "RUN_ENDED"


def test_a_key_of_more_than_512_bytes_is_refused(client: BareClient, run_id: str) -> None:
    assert client.refusal("run.signal", run_id, eventKey="é" * 257)["code"] == "INVALID_COMMAND"
    assert client.result("run.signal", new_id(), eventKey="é" * 256)["stored"] is True
