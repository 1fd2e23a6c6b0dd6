"""Wire contract, section 4: the life of a run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.bare_client import BareClient, key_in_partition, new_id

EVENT = {"type": "log", "line": "hello"}
END = {
    "status": "completed",
    "result": {"a": 1, "b": [1, 2.5, None, True, "x"], "c": {"d": None}},
    "error": "e",
    "totalRows": 10,
    "durationMs": 1.5,
    "playName": "p",
}
BASIC_PLANE_END = 0xFFFF


def javascript_instance_id(run_id: str) -> str:
    """The seed's `workflowInstanceId`, in Python."""
    allowed = "abcdefghijklmnopqrstuvwxyz0123456789_-"
    normalized = ""
    for character in run_id.lower():
        if character in allowed:
            normalized += character
        elif not normalized.endswith("\0"):
            normalized += "\0"
    normalized = normalized.replace("\0", "-")
    if 0 < len(normalized) <= 100:
        return normalized
    value = 2166136261
    for character in run_id:
        point = ord(character)
        units = [point]
        if point > BASIC_PLANE_END:
            units = [0xD800 + ((point - 0x10000) >> 10), 0xDC00 + ((point - 0x10000) & 0x3FF)]
        for unit in units:
            value = (value ^ unit) * 16777619 % 2**32
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return f"run-{digits or '0'}"


def test_a_submit_appends_running_as_the_first_event(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    assert client.result("run.submit", run_id, command_id=command_id, name="x")["seq"] == 1
    event = client.event(run_id, 1)
    assert event.pop("ts") > 1_600_000_000_000
    assert event == {
        "seq": 1,
        "runId": run_id,
        "type": "status",
        "status": "running",
        "commandId": command_id,
    }


def test_a_submit_dispatches_attempt_1(client: BareClient, run_id: str) -> None:
    client.result("run.submit", run_id, name="x")
    dispatches = client.settled("run-dispatch", run_id.encode())
    assert [dispatch.json()["attempt"] for dispatch in dispatches] == [1]


def test_a_submit_of_a_run_that_has_events_goes_on_with_its_seq(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "early")
    assert client.result("run.submit", run_id, name="x")["seq"] == 2
    assert len(client.settled("run-dispatch", run_id.encode())) == 1


@pytest.mark.parametrize("content", [{"name": "x"}, {"name": "other", "params": [1], "pool": "p"}], ids=repr)
def test_the_same_run_again_gets_the_stored_answer_and_dispatches_nothing(
    client: BareClient, run_id: str, content: dict[str, Any]
) -> None:
    first = client.result("run.submit", run_id, name="x")
    assert client.result("run.submit", run_id, **content) == first
    client.append_log(run_id, "x")
    assert client.result("run.submit", run_id, **content) == first
    assert len(client.settled("run-dispatch", run_id.encode())) == 1
    assert len(client.events(run_id)) == 2


def test_the_same_run_again_gets_the_stored_answer_also_after_the_end(
    client: BareClient, run_id: str
) -> None:
    first = client.result("run.submit", run_id, name="x")
    client.result("terminal.set", run_id, status="failed")
    assert client.result("run.submit", run_id, name="again") == first
    assert len(client.settled("run-dispatch", run_id.encode())) == 1


def test_a_run_that_ended_before_it_was_submitted_is_refused(client: BareClient, run_id: str) -> None:
    end = client.result("terminal.set", run_id, status="completed")["terminal"]
    error = client.refusal("run.submit", run_id, name="x")
    assert (error["code"], error["terminal"]) == ("RUN_ENDED", end)
    assert client.settled("run-dispatch", run_id.encode()) == []


def test_params_and_params_ref_together_are_refused(client: BareClient, run_id: str) -> None:
    error = client.refusal("run.submit", run_id, name="x", params={}, paramsRef={"storageKey": "k"})
    assert error["code"] == "INVALID_COMMAND"
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_an_append_to_an_unknown_run_creates_it(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    assert client.result("run.status", run_id)["status"] == "running"


def test_a_terminal_set_on_an_unknown_run_creates_and_ends_it(client: BareClient, run_id: str) -> None:
    client.result("terminal.set", run_id, status="failed", error="e")
    status = client.result("run.status", run_id)
    assert (status["status"], status["error"], status["latestSeq"]) == ("failed", "e", 1)


def test_the_status_of_an_unknown_run_is_run_not_found(client: BareClient, run_id: str) -> None:
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_the_latest_seq_of_an_unknown_run_is_0(client: BareClient, run_id: str) -> None:
    assert client.result("events.list", run_id)["latestSeq"] == 0


def test_questions_create_no_run(client: BareClient, run_id: str) -> None:
    client.result("events.list", run_id)
    client.result("terminal.get", run_id)
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_a_terminal_event_by_append_is_refused_with_advice(client: BareClient, run_id: str) -> None:
    error = client.refusal("events.append", run_id, event={"type": "terminal", "status": "completed"})
    assert error["code"] == "INVALID_RUN_EVENT"
    assert "terminal.set" in error["message"]
    assert client.events(run_id) == []


SAME_ENDS: dict[str, dict[str, Any]] = {
    "the same": {},
    "order of names": {"result": {"c": {"d": None}, "b": [1, 2.5, None, True, "x"], "a": 1}},
    "1.0 for 1": {"result": {"a": 1.0, "b": [1.0, 2.5, None, True, "x"], "c": {"d": None}}},
    "10.0 for 10": {"totalRows": 10.0},
    "another completedAt": {"completedAt": 5},
}
OTHER_ENDS: dict[str, dict[str, Any]] = {
    "status": {"status": "failed"},
    "error": {"error": "other"},
    "error null": {"error": None},
    "totalRows": {"totalRows": 11},
    "totalRows a string": {"totalRows": "10"},
    "durationMs": {"durationMs": 1.25},
    "playName": {"playName": "q"},
    "result null": {"result": None},
    "result text": {"result": "x"},
    "true is not 1": {"result": {**END["result"], "a": True}},
    "1 is not true": {"result": {**END["result"], "b": [1, 2.5, None, 1, "x"]}},
    "a name more, null": {"result": {**END["result"], "z": None}},
    "a null less": {"result": {**END["result"], "c": {}}},
    "order of a list": {"result": {**END["result"], "b": [2.5, 1, None, True, "x"]}},
    "a list longer": {"result": {**END["result"], "b": [1, 2.5, None, True, "x", None]}},
}


@pytest.mark.parametrize("what", SAME_ENDS)
def test_the_same_end_again_is_ok_and_repeated(client: BareClient, run_id: str, what: str) -> None:
    first = client.result("terminal.set", run_id, **END)
    again = client.result("terminal.set", run_id, **{**END, **SAME_ENDS[what]})
    assert again == {"terminal": first["terminal"], "repeated": True}
    assert len(client.events(run_id)) == 1
    assert len(client.settled("run-terminals", run_id.encode())) == 1


@pytest.mark.parametrize("what", OTHER_ENDS)
def test_another_end_is_refused_with_the_stored_one(client: BareClient, run_id: str, what: str) -> None:
    first = client.result("terminal.set", run_id, **END)
    error = client.refusal("terminal.set", run_id, **{**END, **OTHER_ENDS[what]})
    assert (error["code"], error["terminal"]) == ("RUN_ENDED", first["terminal"])
    assert len(client.events(run_id)) == 1
    assert len(client.settled("run-terminals", run_id.encode())) == 1


def test_in_an_end_absent_is_the_same_as_null(client: BareClient, run_id: str) -> None:
    client.result("terminal.set", run_id, status="completed")
    unset = dict.fromkeys(("result", "error", "totalRows", "durationMs", "playName"))
    assert client.result("terminal.set", run_id, status="completed", **unset)["repeated"] is True


@pytest.mark.parametrize("result", [0, 1, "", [], {}, False, True], ids=repr)
def test_ends_differ_in_the_kind_of_their_result(client: BareClient, run_id: str, result: Any) -> None:
    client.result("terminal.set", run_id, status="completed", result=result)
    for other in (0, 1, "", [], {}, False, True, None):
        answer = client.call("terminal.set", run_id, status="completed", result=other)
        assert answer["ok"] is (type(other) is type(result) and other == result)


@pytest.mark.parametrize("completed_at", [0, 77, -1, 1_700_000_000_000.25])
def test_the_time_of_the_terminal_event_is_completed_at(
    client: BareClient, run_id: str, completed_at: float
) -> None:
    result = client.result("terminal.set", run_id, status="completed", completedAt=completed_at)
    assert result["terminal"]["completedAt"] == completed_at
    assert client.event(run_id, 1)["ts"] == completed_at
    other = new_id()
    asked = client.ask("terminal.set", other, status="completed")
    assert client.reply(asked)["result"]["terminal"]["completedAt"] >= asked.sent.timestamp
    assert client.event(other, 1)["ts"] == client.terminal(other)["completedAt"]


def test_the_terminal_state_has_the_seq_of_the_terminal_event(client: BareClient, run_id: str) -> None:
    for _ in range(3):
        client.append_log(run_id, "x")
    client.result("terminal.set", run_id, status="completed")
    assert client.terminal(run_id)["seq"] == 4
    assert client.event(run_id, 4)["type"] == "terminal"


def test_a_cancel_of_an_unknown_run_refuses_the_submit_that_it_overtook(
    client: BareClient, run_id: str
) -> None:
    result = client.result("run.cancel", run_id)
    assert (result["status"], result["terminal"]["status"]) == ("cancelled", "cancelled")
    error = client.refusal("run.submit", run_id, name="x")
    assert (error["code"], error["terminal"]) == ("RUN_ENDED", result["terminal"])
    assert client.settled("run-dispatch", run_id.encode()) == []


def test_a_cancel_ends_a_running_run(client: BareClient, run_id: str) -> None:
    client.result("run.submit", run_id, name="x")
    client.result("run.cancel", run_id)
    assert [event["type"] for event in client.events(run_id)] == ["status", "terminal"]
    assert client.result("run.status", run_id)["status"] == "cancelled"


def test_a_cancel_of_an_ended_run_answers_its_stored_end(client: BareClient, run_id: str) -> None:
    end = client.result("terminal.set", run_id, **END)["terminal"]
    assert client.result("run.cancel", run_id, reason="late") == {"status": "completed", "terminal": end}
    assert len(client.events(run_id)) == 1


def test_the_reason_of_a_cancel_becomes_the_error(client: BareClient, run_id: str) -> None:
    result = client.result("run.cancel", run_id, reason="not needed")
    assert result["terminal"]["error"] == "not needed"
    assert client.result("run.status", run_id)["error"] == "not needed"


def test_every_write_after_the_end_is_refused_with_the_end(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    end = client.result("terminal.set", run_id, **END)["terminal"]
    for type_, fields in (
        ("events.append", {"event": EVENT}),
        ("events.append", {"event": {"type": "status", "status": "x"}}),
        ("terminal.set", {"status": "cancelled"}),
        ("run.submit", {"name": "x"}),
    ):
        error = client.refusal(type_, run_id, **fields)
        assert (error["code"], error["terminal"]) == ("RUN_ENDED", end)
    assert [event["type"] for event in client.events(run_id)] == ["log", "terminal"]


def test_events_of_an_ended_run_can_still_be_listed(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    client.result("terminal.set", run_id, status="completed")
    assert [event["type"] for event in client.result("events.list", run_id)["events"]] == ["log", "terminal"]


@pytest.mark.parametrize(
    "start",
    ["a/b", "A.B", "play/Report/run/", "é", "😀", "___", "--", "a  b", "İ", "x\0y", "ß", "K", "０"],
)
def test_the_instance_id_is_that_of_the_seed(client: BareClient, start: str) -> None:
    run_id = f"{start}-{new_id()}"
    result = client.result("run.submit", run_id, name="x")
    assert result["instanceId"] == javascript_instance_id(run_id)


@pytest.mark.parametrize("character", ["x", "é", "😀", "/", "A"])
@pytest.mark.parametrize("length", [99, 100, 101, 120])
def test_the_instance_id_of_a_long_run_id_is_a_hash(client: BareClient, character: str, length: int) -> None:
    run_id = new_id()
    run_id += character * (length - len(run_id))
    result = client.result("run.submit", run_id, name="x")
    assert result["instanceId"] == javascript_instance_id(run_id)
    assert len(result["instanceId"]) <= 100


def test_instance_ids_are_not_unique_across_runs(client: BareClient) -> None:
    suffix = new_id()
    first = client.result("run.submit", f"a/{suffix}", name="x")
    second = client.result("run.submit", f"a-{suffix}", name="x")
    assert first["instanceId"] == second["instanceId"] == f"a-{suffix}"
    for run_id in (f"a/{suffix}", f"a-{suffix}"):
        assert len(client.settled("run-dispatch", run_id.encode())) == 1


def test_what_a_superseded_attempt_sends_is_refused(client: BareClient, run_id: str) -> None:
    instance_id = client.result("run.submit", run_id, name="x")["instanceId"]
    current = {"instanceId": instance_id, "attempt": 1}
    assert client.result("events.append", run_id, event=EVENT, **current)["seq"] == 2
    for wrong in ({**current, "attempt": 2}, {**current, "instanceId": "other"}, {"attempt": 0}):
        assert client.refusal("events.append", run_id, event=EVENT, **wrong)["code"] == "ATTEMPT_SUPERSEDED"
        assert client.refusal("terminal.set", run_id, **END, **wrong)["code"] == "ATTEMPT_SUPERSEDED"
    assert client.result("terminal.set", run_id, **END, **current)["repeated"] is False


def test_seq_is_dense_under_commands_for_many_runs(client: BareClient) -> None:
    run_ids = [key_in_partition(number % client.partitions, client.partitions) for number in range(20)]
    for number in range(600):
        client.post("events.append", run_ids[number % 20], event={"type": "log", "line": str(number)})
    for run_id in run_ids:
        client.event(run_id, 30)
        assert [event["seq"] for event in client.events(run_id)] == list(range(1, 31))
