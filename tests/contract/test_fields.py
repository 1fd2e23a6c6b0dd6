"""Wire contract, section 1: fields inside a known command."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.bare_client import BareClient, new_id

NOT_STRINGS: list[Any] = [None, 5, 1.5, True, ["x"], {"x": "y"}]
NOT_NUMBERS: list[Any] = [None, "7", "", True, False, [7], {"n": 7}]
ANY_JSON: list[Any] = [
    0,
    -1.5,
    "text",
    "",
    True,
    False,
    [],
    [None, {"a": []}],
    {},
    {"a": {"b": None}},
    "é\0😀",
]


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "append without event": ("events.append", {}, "INVALID_RUN_EVENT"),
    "event null": ("events.append", {"event": None}, "INVALID_RUN_EVENT"),
    "event text": ("events.append", {"event": "log"}, "INVALID_RUN_EVENT"),
    "event list": ("events.append", {"event": []}, "INVALID_RUN_EVENT"),
    "event number": ("events.append", {"event": 5}, "INVALID_RUN_EVENT"),
    "event empty": ("events.append", {"event": {}}, "INVALID_RUN_EVENT"),
    "event type unknown": ("events.append", {"event": {"type": "note", "line": "x"}}, "INVALID_RUN_EVENT"),
    "event type null": ("events.append", {"event": {"type": None}}, "INVALID_RUN_EVENT"),
    "event type a list": ("events.append", {"event": {"type": ["log"]}}, "INVALID_RUN_EVENT"),
    "event type an object": ("events.append", {"event": {"type": {}}}, "INVALID_RUN_EVENT"),
    "status without status": ("events.append", {"event": {"type": "status"}}, "INVALID_RUN_EVENT"),
    "status a number": ("events.append", {"event": {"type": "status", "status": 1}}, "INVALID_RUN_EVENT"),
    "log without line": ("events.append", {"event": {"type": "log"}}, "INVALID_RUN_EVENT"),
    "log line null": ("events.append", {"event": {"type": "log", "line": None}}, "INVALID_RUN_EVENT"),
    "progress without status": ("events.append", {"event": {"type": "progress"}}, "INVALID_RUN_EVENT"),
    "progress status a list": (
        "events.append",
        {"event": {"type": "progress", "status": ["x"]}},
        "INVALID_RUN_EVENT",
    ),
    "terminal without status": ("terminal.set", {}, "INVALID_COMMAND"),
    "terminal status unknown": ("terminal.set", {"status": "done"}, "INVALID_COMMAND"),
    "terminal status running": ("terminal.set", {"status": "running"}, "INVALID_COMMAND"),
    "terminal status a number": ("terminal.set", {"status": 1}, "INVALID_COMMAND"),
    "terminal status a list": ("terminal.set", {"status": ["completed"]}, "INVALID_COMMAND"),
    "submit without name": ("run.submit", {}, "INVALID_COMMAND"),
    "submit name a number": ("run.submit", {"name": 5}, "INVALID_COMMAND"),
    "submit name empty": ("run.submit", {"name": ""}, "INVALID_COMMAND"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_missing_or_wrong_fields_are_refused_by_an_error_reply_and_no_dead_letter(
    client: BareClient, run_id: str, what: str
) -> None:
    type_, fields, code = REFUSED[what]
    asked = client.ask(type_, run_id, **fields)
    answer = client.reply(asked)
    assert (answer["ok"], answer["commandId"]) == (False, asked.command_id)
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    assert client.dead_letters_of(asked.sent) == []
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_for_wrong_fields_is_remembered(client: BareClient, run_id: str, what: str) -> None:
    type_, fields, _ = REFUSED[what]
    command_id = new_id()
    first = client.refusal(type_, run_id, command_id=command_id, **fields)
    right = {"type": "log", "line": "right"}
    assert client.refusal("events.append", run_id, command_id=command_id, event=right) == first
    assert client.events(run_id) == []


@pytest.mark.parametrize("wrong", NOT_STRINGS)
def test_an_optional_string_of_the_wrong_type_becomes_null(
    client: BareClient, run_id: str, wrong: Any
) -> None:
    progress = {
        "type": "progress",
        "status": "x",
        "activeNodeId": wrong,
        "activeArtifactTableNamespace": wrong,
    }
    client.result("events.append", run_id, event=progress)
    event = client.event(run_id, 1)
    assert (event["activeNodeId"], event["activeArtifactTableNamespace"]) == (None, None)
    result = client.result("terminal.set", run_id, status="failed", error=wrong, playName=wrong)
    assert (result["terminal"]["error"], result["terminal"]["playName"]) == (None, None)
    other = new_id()
    assert client.result("run.cancel", other, reason=wrong)["terminal"]["error"] is None


@pytest.mark.parametrize("wrong", NOT_STRINGS)
def test_the_optional_strings_of_a_submit_never_refuse_it(
    client: BareClient, run_id: str, wrong: Any
) -> None:
    result = client.result("run.submit", run_id, name="x", pool=wrong, parentRunId=wrong)
    assert result["seq"] == 1


@pytest.mark.parametrize("wrong", NOT_NUMBERS)
def test_an_optional_number_of_the_wrong_type_takes_its_default(
    client: BareClient, run_id: str, wrong: Any
) -> None:
    first = client.result("events.append", run_id, event={"type": "log", "line": "x", "ts": wrong})
    assert isinstance(first["ts"], int)
    assert first["ts"] > 1_600_000_000_000
    client.append_log(run_id, "y")
    listed = client.result("events.list", run_id, afterSeq=wrong, limit=wrong, timeoutMs=wrong)
    assert [event["seq"] for event in listed["events"]] == [1, 2]
    at_once = client.result("events.list", run_id, afterSeq=2, timeoutMs=wrong)
    assert at_once["events"] == []
    client.result("events.append", run_id, event={"type": "progress", "status": "x", "updatedAt": wrong})
    assert client.event(run_id, 3)["updatedAt"] is None
    assert client.result("run.status", run_id, waitMs=wrong)["status"] == "running"
    result = client.result("terminal.set", run_id, status="completed", completedAt=wrong)
    assert result["terminal"]["completedAt"] >= first["ts"]


def test_an_optional_list_of_the_wrong_type_counts_as_absent(client: BareClient, run_id: str) -> None:
    for number, wrong in enumerate(["x", 5, True, {}, None], start=1):
        client.result("events.append", run_id, event={"type": "progress", "status": "x", "logs": wrong})
        assert client.event(run_id, number)["logs"] is None


@pytest.mark.parametrize("value", ANY_JSON, ids=repr)
def test_result_total_rows_and_duration_are_any_json(client: BareClient, run_id: str, value: Any) -> None:
    result = client.result(
        "terminal.set", run_id, status="completed", result=value, totalRows=value, durationMs=value
    )
    for state in (result["terminal"], client.terminal(run_id), client.event(run_id, 1)):
        for field in ("result", "totalRows", "durationMs"):
            assert state[field] == value
            assert type(state[field]) is type(value)


def test_unknown_fields_of_a_command_are_ignored(client: BareClient, run_id: str) -> None:
    event = {"type": "log", "line": "x"}
    result = client.result(
        "events.append", run_id, event=event, bucketId="b", seq=7, status="completed", x={"y": []}
    )
    assert result["seq"] == 1
    assert client.result("run.status", run_id)["status"] == "running"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "log", "line": "x"},
        {"type": "status", "status": "x"},
        {"type": "progress", "status": "x"},
    ],
    ids=lambda event: event["type"],
)
def test_unknown_fields_inside_an_event_are_dropped(
    client: BareClient, run_id: str, event: dict[str, Any]
) -> None:
    client.result("events.append", run_id, event=event)
    client.result(
        "events.append", run_id, event={**event, "extra": 1, "result": {}, "commandId": "mine", "v": 2}
    )
    plain, with_more = client.event(run_id, 1), client.event(run_id, 2)
    assert set(with_more) == set(plain)
    assert with_more["commandId"] != "mine"


def test_an_events_own_seq_and_run_id_are_ignored(client: BareClient, run_id: str) -> None:
    event = {"type": "log", "line": "x", "seq": 77, "runId": "another"}
    assert client.result("events.append", run_id, event=event)["seq"] == 1
    stored = client.event(run_id, 1)
    assert (stored["seq"], stored["runId"]) == (1, run_id)
    assert client.append_log(run_id, "next")["seq"] == 2


@pytest.mark.parametrize("ts", [0, 1, -5, 1_700_000_000_000, 1_700_000_000_000.5, 2**53])
def test_an_events_own_time_is_kept(client: BareClient, run_id: str, ts: float) -> None:
    assert client.result("events.append", run_id, event={"type": "log", "line": "x", "ts": ts})["ts"] == ts
    assert client.event(run_id, 1)["ts"] == ts


def test_without_a_time_of_its_own_an_event_has_the_brokers(client: BareClient, run_id: str) -> None:
    asked = client.ask("events.append", run_id, event={"type": "log", "line": "x"})
    result = client.reply(asked)["result"]
    assert client.event(run_id, 1)["ts"] == result["ts"] >= asked.sent.timestamp


def test_of_logs_only_the_strings_are_kept(client: BareClient, run_id: str) -> None:
    logs = ["a", 1, None, "b", ["c"], {"d": 1}, True, ""]
    for number, type_ in enumerate(("status", "progress"), start=1):
        client.result("events.append", run_id, event={"type": type_, "status": "x", "logs": logs})
        assert client.event(run_id, number)["logs"] == ["a", "b", ""]
