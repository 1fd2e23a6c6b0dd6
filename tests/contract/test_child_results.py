"""Wire contract, section 7: child results."""

from __future__ import annotations

import pytest

from tests.contract.bare_client import Asked, BareClient, new_id
from tests.contract.conftest import StillServed

LONG_MS = 30_000


def wait_for(client: BareClient, run_id: str, key: str = "k", timeout_ms: int = LONG_MS) -> Asked:
    """Wait for a child's result."""
    return client.ask("child.terminal.await", run_id, eventKey=key, timeoutMs=timeout_ms)


def test_a_result_is_stored_under_its_name(client: BareClient, run_id: str) -> None:
    data = {"rows": [1, 2.5, None, "é"]}
    stored = client.result("child.terminal.set", run_id, eventKey="k", data=data, storedAt=17)
    assert stored == {"state": {"eventKey": "k", "data": data, "storedAt": 17}}
    assert client.result("child.terminal.get", run_id, eventKey="k") == stored
    assert client.reply(wait_for(client, run_id))["result"] == stored
    assert client.result("child.terminal.get", run_id, eventKey="other") == {"state": None}


def test_without_data_and_time_it_is_null_and_the_commands_time(client: BareClient, run_id: str) -> None:
    asked = client.ask("child.terminal.set", run_id, eventKey="k", storedAt="yesterday")
    state = client.reply(asked)["result"]["state"]
    assert state["data"] is None
    assert state["storedAt"] >= asked.sent.timestamp


def test_white_space_around_a_name_does_not_count(client: BareClient, run_id: str) -> None:
    waiting = wait_for(client, run_id, "\ufeffa b\u3000")
    client.result("child.terminal.set", run_id, eventKey=" a b\n", data=1)
    assert client.reply(waiting)["result"]["state"]["eventKey"] == "a b"
    assert client.result("child.terminal.get", run_id, eventKey="\ta b")["state"]["data"] == 1
    assert client.result("child.terminal.get", run_id, eventKey="ab")["state"] is None


@pytest.mark.parametrize("key", ["", " \n\t", 1, None, ["k"], "k" * 513])
@pytest.mark.parametrize("type_", ["child.terminal.set", "child.terminal.get", "child.terminal.await"])
def test_a_name_has_1_to_512_bytes(client: BareClient, run_id: str, type_: str, key: object) -> None:
    error = client.refusal(type_, run_id, eventKey=key)
    assert error["code"] == "INVALID_COMMAND"
    assert "eventKey" in error["message"]


def test_set_again_the_new_result_stands(client: BareClient, run_id: str) -> None:
    for number in (1, 2):
        client.result("child.terminal.set", run_id, eventKey="k", data=number)
    assert client.result("child.terminal.get", run_id, eventKey="k")["state"]["data"] == 2


def test_a_result_of_up_to_a_commands_size_is_kept(client: BareClient, run_id: str) -> None:
    data = "x" * 1_000_000
    set_id = new_id()
    stored = client.result("child.terminal.set", run_id, command_id=set_id, eventKey="k", data=data)
    assert client.result("child.terminal.get", run_id, eventKey="k") == stored
    assert client.result("child.terminal.set", run_id, command_id=set_id, eventKey="k") == stored


def test_a_set_that_comes_again_gets_its_first_answer(client: BareClient, run_id: str) -> None:
    set_id = new_id()
    first = client.result("child.terminal.set", run_id, command_id=set_id, eventKey="k", data=1)
    client.result("child.terminal.set", run_id, eventKey="k", data=2)
    assert client.result("child.terminal.set", run_id, command_id=set_id, eventKey="k", data=3) == first
    assert client.result("child.terminal.get", run_id, eventKey="k")["state"]["data"] == 2


def test_a_large_one_that_comes_again_says_what_is_stored_by_then(client: BareClient, run_id: str) -> None:
    set_id = new_id()
    client.result("child.terminal.set", run_id, command_id=set_id, eventKey="k", data="x" * 5000)
    newer = client.result("child.terminal.set", run_id, eventKey="k", data=2)
    assert client.result("child.terminal.set", run_id, command_id=set_id, eventKey="k") == newer


def test_all_who_wait_are_answered(client: BareClient, run_id: str) -> None:
    waiting = [wait_for(client, run_id) for _ in range(5)]
    of_another = wait_for(client, run_id, "another")
    client.result("child.terminal.set", run_id, eventKey="k", data=[])
    assert [client.reply(asked)["result"]["state"]["data"] for asked in waiting] == [[]] * 5
    client.result("child.terminal.set", run_id, eventKey="another", data=1)
    assert client.reply(of_another)["result"]["state"]["data"] == 1


def test_at_the_time_out_the_state_is_null(client: BareClient, run_id: str) -> None:
    asked = wait_for(client, run_id, timeout_ms=300)
    record = client.reply_record(asked.correlation_id)
    assert record.json()["result"] == {"state": None}
    assert record.timestamp >= asked.sent.timestamp + 300


def test_without_a_time_out_nobody_waits(client: BareClient, run_id: str) -> None:
    assert client.result("child.terminal.await", run_id, eventKey="k") == {"state": None}


def test_a_set_makes_a_run_known_and_a_question_does_not(client: BareClient, run_id: str) -> None:
    wait_for(client, run_id)
    client.result("child.terminal.get", run_id, eventKey="k")
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    client.result("child.terminal.set", run_id, eventKey="k")
    assert client.result("run.status", run_id)["status"] == "running"


def test_after_the_end_a_set_is_refused_and_nobody_waits(client: BareClient, run_id: str) -> None:
    client.result("child.terminal.set", run_id, eventKey="k", data=1)
    waiting = wait_for(client, run_id, "other")
    terminal = client.result("terminal.set", run_id, status="completed")["terminal"]
    assert client.reply(waiting)["result"] == {"state": None}
    error = client.refusal("child.terminal.set", run_id, eventKey="k", data=2)
    assert (error["code"], error["terminal"]) == ("RUN_ENDED", terminal)
    assert client.reply(wait_for(client, run_id))["result"]["state"]["data"] == 1
    assert client.reply(wait_for(client, run_id, "other"))["result"] == {"state": None}


def test_a_wait_without_a_reply_address_is_dropped(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    client.post("child.terminal.await", run_id, eventKey="k", timeoutMs=LONG_MS)
    still_served(client.partition_of(run_id))
    client.result("child.terminal.set", run_id, eventKey="k")
