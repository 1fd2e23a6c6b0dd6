"""Wire contract, section 3: results, and what events, terminal states and dispatches look like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.contract.bare_client import BareClient, new_id

EVENT = {"type": "log", "line": "hello"}
TERMINAL_FIELDS = {
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
}
# Text that a JSON writer may escape but need not, and what it must.
TEXT = "é € 😀 \u2028 \x7f / < > & ' \" \\ \n \x01"


def test_a_reply_has_these_fields(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    answer = client.call("events.append", run_id, command_id=command_id, event=EVENT)
    assert set(answer) == {"commandId", "ok", "result"}
    assert answer["commandId"] == command_id
    answer = client.call("events.append", run_id, command_id=(command_id := new_id()))
    assert set(answer) == {"commandId", "ok", "error"}
    assert (answer["commandId"], answer["ok"]) == (command_id, False)
    assert isinstance(answer["error"]["message"], str)


def test_the_result_is_always_an_object(client: BareClient, run_id: str) -> None:
    for type_, fields in (
        ("run.submit", {"name": "x"}),
        ("run.status", {}),
        ("events.append", {"event": EVENT}),
        ("events.list", {}),
        ("terminal.get", {}),
        ("terminal.set", {"status": "completed"}),
        ("terminal.get", {}),
        ("run.cancel", {}),
        ("run.finish", {}),
    ):
        assert isinstance(client.result(type_, run_id, **fields), dict)


def test_run_submit(client: BareClient, run_id: str) -> None:
    result = client.result("run.submit", run_id, name="x")
    assert result == {"runId": run_id, "instanceId": run_id, "status": "running", "seq": 1}


def test_run_status(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    running = {
        "runId": run_id,
        "status": "running",
        "result": None,
        "error": None,
        "totalRows": None,
        "durationMs": None,
        "latestSeq": 1,
    }
    assert client.result("run.status", run_id) == running
    client.result(
        "terminal.set", run_id, status="failed", result={"a": 1}, error="bad", totalRows=3, durationMs=4.5
    )
    assert client.result("run.status", run_id) == {
        **running,
        "status": "failed",
        "result": {"a": 1},
        "error": "bad",
        "totalRows": 3,
        "durationMs": 4.5,
        "latestSeq": 2,
    }


def test_run_status_with_the_traces(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    assert client.result("run.status", run_id, trace=1)["traces"] == []


def test_run_cancel(client: BareClient, run_id: str) -> None:
    result = client.result("run.cancel", run_id, reason="not needed")
    assert set(result) == {"status", "terminal"}
    assert result["status"] == "cancelled"
    assert result["terminal"] == client.terminal(run_id)


def test_events_append(client: BareClient, run_id: str) -> None:
    result = client.result("events.append", run_id, event={**EVENT, "ts": 12345})
    assert result == {"seq": 1, "ts": 12345}


def test_events_list(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    client.append_log(run_id, "y")
    result = client.result("events.list", run_id)
    assert result == {"events": client.events(run_id), "latestSeq": 2, "firstSeq": 1}
    assert client.result("events.list", run_id, limit=1)["more"] is True


def test_terminal_set(client: BareClient, run_id: str) -> None:
    first = client.result("terminal.set", run_id, status="completed")
    assert first == {"terminal": client.terminal(run_id), "repeated": False}
    assert client.result("terminal.set", run_id, status="completed") == {**first, "repeated": True}


def test_terminal_get(client: BareClient, run_id: str) -> None:
    assert client.result("terminal.get", run_id) == {"terminal": None}
    client.result("terminal.set", run_id, status="completed")
    assert client.result("terminal.get", run_id) == {"terminal": client.terminal(run_id)}


def test_run_finish(client: BareClient, run_id: str) -> None:
    client.result("run.cancel", run_id)
    asked = client.ask("run.finish", run_id)
    result = client.reply(asked)["result"]
    assert set(result) == {"evictsAt"}
    assert result["evictsAt"] >= asked.sent.timestamp + 60_000


def test_run_finish_is_refused_when_the_run_has_not_ended(client: BareClient, run_id: str) -> None:
    client.result("run.submit", run_id, name="x")
    assert client.refusal("run.finish", run_id)["code"] == "RUN_NOT_ENDED"
    assert client.append_log(run_id, "goes on")["seq"] == 2


def test_events_terminals_and_dispatches_carry_the_id_of_their_command(
    client: BareClient, run_id: str
) -> None:
    submit_id, append_id, end_id = new_id(), new_id(), new_id()
    client.result("run.submit", run_id, command_id=submit_id, name="x")
    client.append_log(run_id, "x", command_id=append_id)
    client.result("terminal.set", run_id, command_id=end_id, status="completed")
    assert [event["commandId"] for event in client.events(run_id)] == [submit_id, append_id, end_id]
    assert client.terminal(run_id)["commandId"] == end_id
    (dispatch,) = client.settled("run-dispatch", run_id.encode())
    assert dispatch.json()["commandId"] == submit_id


def test_an_event_is_keyed_by_its_run_and_says_what_it_is(client: BareClient, run_id: str) -> None:
    asked = client.ask("events.append", run_id, event=EVENT)
    ts = client.reply(asked)["result"]["ts"]
    record = client.event_record(run_id, 1)
    assert record.key == run_id.encode()
    assert record.partition == client.partition_of(run_id)
    assert record.json() == {
        "seq": 1,
        "runId": run_id,
        "type": "log",
        "ts": ts,
        "line": "hello",
        "commandId": asked.command_id,
    }


def test_a_progress_event_always_has_all_its_fields(client: BareClient, run_id: str) -> None:
    client.result("events.append", run_id, event={"type": "progress", "status": "x"})
    event = client.event(run_id, 1)
    names = ("logs", "activeNodeId", "activeArtifactTableNamespace", "updatedAt")
    assert set(event) == {"seq", "runId", "type", "ts", "commandId", "status", *names}
    assert [event[name] for name in names] == [None] * 4
    full = {
        "type": "progress",
        "status": "half",
        "logs": ["a"],
        "activeNodeId": "n",
        "activeArtifactTableNamespace": "t",
        "updatedAt": 5,
    }
    client.result("events.append", run_id, event=full)
    event = client.event(run_id, 2)
    assert {name: event[name] for name in full} == full


def test_a_terminal_event_always_has_all_its_fields(client: BareClient, run_id: str) -> None:
    client.result("terminal.set", run_id, status="completed")
    event = client.event(run_id, 1)
    unset = ("result", "error", "totalRows", "durationMs", "playName")
    assert set(event) == {"seq", "runId", "type", "ts", "commandId", "status", *unset}
    assert [event[name] for name in unset] == [None] * 5


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"result": {"a": [1, None]}, "error": "e", "totalRows": 3, "durationMs": 4, "playName": "p"},
    ],
    ids=["all unset", "all set"],
)
def test_a_terminal_state_has_exactly_these_fields(
    client: BareClient, run_id: str, fields: dict[str, Any]
) -> None:
    client.append_log(run_id, "x")
    command_id = new_id()
    client.result("terminal.set", run_id, command_id=command_id, status="failed", completedAt=99, **fields)
    state = client.terminal(run_id)
    assert set(state) == TERMINAL_FIELDS
    unset = dict.fromkeys(("result", "error", "totalRows", "durationMs", "playName"))
    assert state == {
        "runId": run_id,
        "seq": 2,
        "status": "failed",
        "completedAt": 99,
        "commandId": command_id,
        **unset,
        **fields,
    }
    (record,) = client.settled("run-terminals", run_id.encode())
    assert record.partition == client.partition_of(run_id)


def test_logs_of_a_status_event_are_left_out_when_unset(client: BareClient, run_id: str) -> None:
    client.result("events.append", run_id, event={"type": "status", "status": "x"})
    assert set(client.event(run_id, 1)) == {"seq", "runId", "type", "ts", "commandId", "status"}
    client.result("events.append", run_id, event={"type": "status", "status": "x", "logs": []})
    assert client.event(run_id, 2)["logs"] == []


def test_output_json_has_no_escaping_beyond_what_json_needs(client: BareClient) -> None:
    run_id = f"é😀\u2028-{new_id()}"
    client.result("run.submit", run_id, name=TEXT, params={TEXT: TEXT})
    client.append_log(run_id, TEXT)
    ended = client.ask("terminal.set", run_id, status="failed", error=TEXT, result={TEXT: [TEXT]})
    records = [
        client.reply_record(ended.correlation_id),
        client.event_record(run_id, 1),
        client.event_record(run_id, 2),
        client.event_record(run_id, 3),
        *client.settled("run-terminals", run_id.encode()),
        *client.settled("run-dispatch", run_id.encode()),
    ]
    assert len(records) == 6
    for record in records:
        assert record.value is not None
        # Python escapes nothing but what JSON needs, when it is told so.
        assert record.value.decode() == json.dumps(record.json(), ensure_ascii=False, separators=(",", ":"))


def test_a_dispatch_is_the_order_to_run_the_run(client: BareClient, run_id: str) -> None:
    asked = client.ask(
        "run.submit", run_id, name="report", params={"a": [1]}, pool="p", parentRunId="parent", unknown=1
    )
    result = client.reply(asked)["result"]
    (record,) = client.settled("run-dispatch", run_id.encode())
    dispatch = record.json()
    assert record.partition == client.partition_of(run_id)
    assert dispatch.pop("dispatchedAt") >= asked.sent.timestamp
    assert dispatch == {
        "runId": run_id,
        "instanceId": result["instanceId"],
        "attempt": 1,
        "name": "report",
        "params": {"a": [1]},
        "pool": "p",
        "parentRunId": "parent",
        "commandId": asked.command_id,
    }


def test_a_dispatch_passes_a_reference_to_parameters_on(client: BareClient, run_id: str) -> None:
    reference = {"storageKind": "s3", "storageKey": "k"}
    client.result("run.submit", run_id, name="x", paramsRef=reference)
    (record,) = client.settled("run-dispatch", run_id.encode())
    dispatch = record.json()
    assert dispatch["paramsRef"] == reference
    assert dispatch.get("params") is None


@pytest.mark.parametrize(
    ("fields", "passed_on"),
    [
        ({"baseUrl": "HTTPS://Example.com:443/"}, "https://example.com"),
        ({"callbackBaseUrl": "http://a:1", "baseUrl": "http://b"}, "http://a:1"),
        ({"callbackBaseUrl": "http://user:password@a", "baseUrl": "http://b"}, "http://b"),
        ({"baseUrl": "http://a/path"}, None),
        ({"baseUrl": 5}, None),
        ({}, None),
    ],
)
def test_a_dispatch_passes_a_right_base_url_on(
    client: BareClient, run_id: str, fields: dict[str, Any], passed_on: str | None
) -> None:
    client.result("run.submit", run_id, name="x", **fields)
    (record,) = client.settled("run-dispatch", run_id.encode())
    dispatch = record.json()
    assert dispatch.get("baseUrl") == passed_on
    assert ("baseUrl" in dispatch) is (passed_on is not None)


def test_who_needs_to_see_an_event_waits_for_its_seq(client: BareClient, run_id: str) -> None:
    for _ in range(20):
        seq = client.append_log(run_id, "x")["seq"]
        assert client.event(run_id, seq)["seq"] == seq
