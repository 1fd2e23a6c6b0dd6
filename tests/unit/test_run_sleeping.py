"""A run sleeps while its own function waits for a named result."""

from __future__ import annotations

from typing import Any

import pytest

from tests.run_lane import SECOND, RunLane, code, result


@pytest.fixture
def lane() -> RunLane:
    """A lane with the submitted run `r`."""
    lane = RunLane()
    lane.send("run.submit", name="n")
    return lane


def wait(lane: RunLane, event_key: str = "k", **fields: Any) -> dict[str, Any]:
    return lane.send("child.terminal.await", eventKey=event_key, timeoutMs=30_000, **fields)


def state(lane: RunLane) -> tuple[str, Any]:
    status = result(lane.send("run.status"))
    return status["status"], status.get("wait")


def asleep(*names: str) -> tuple[str, Any]:
    return "sleeping", {"kind": "integration_event_batch", "eventKeys": list(names)}


def test_it_sleeps_until_what_its_function_waits_for_comes(lane: RunLane) -> None:
    assert wait(lane, instanceId="r", attempt=1) == {"waits": True}
    wait(lane, "b", instanceId="r")
    assert state(lane) == asleep("b", "k")
    assert result(lane.send("run.inspect"))["status"] == "sleeping"
    lane.send("child.terminal.set", eventKey="k")
    assert state(lane) == asleep("b")
    lane.send("run.signal", eventKey="b")
    assert state(lane) == ("running", None)


def test_it_wakes_when_the_wait_is_over_and_when_it_ends(lane: RunLane) -> None:
    wait(lane, instanceId="r")
    lane.pass_time(29 * SECOND)
    assert state(lane) == asleep("k")
    lane.pass_time(SECOND)
    assert state(lane) == ("running", None)
    wait(lane, instanceId="r")
    lane.end()
    assert state(lane) == ("completed", None)


def test_a_status_that_was_waited_for_says_it_too(lane: RunLane) -> None:
    wait(lane, instanceId="r")
    lane.send("run.status", command_id="asks", waitMs=2000)
    lane.pass_time(2 * SECOND)
    ((_, answer),) = [late for late in lane.late if late[0] == "asks"]
    assert (answer["result"]["status"], answer["result"]["wait"]) == asleep("k")


def test_others_that_wait_let_it_run(lane: RunLane) -> None:
    wait(lane)
    lane.send("call.await", toolId="t", inputHash="h", timeoutMs=30_000)
    lane.send("events.list", afterSeq=9, timeoutMs=30_000)
    assert state(lane) == ("running", None)
    # Of a run that nobody has submitted, nobody is the executor.
    lane.send("child.terminal.await", "other", eventKey="k", timeoutMs=30_000, instanceId="other")
    assert code(lane.send("run.status", "other")) == "RUN_NOT_FOUND"
    assert result(lane.send("run.inspect", "other"))["status"] is None


@pytest.mark.parametrize("identity", [{"instanceId": "another"}, {"attempt": 2}])
def test_a_superseded_attempt_may_read_but_not_wait(lane: RunLane, identity: dict[str, Any]) -> None:
    assert code(wait(lane, **identity)) == "ATTEMPT_SUPERSEDED"
    assert state(lane) == ("running", None)
    lane.send("child.terminal.set", eventKey="k", data=1)
    assert result(wait(lane, **identity))["state"]["data"] == 1


def test_twenty_names_are_told(lane: RunLane) -> None:
    for number in range(25):
        wait(lane, f"{number:02d}", instanceId="r")
    assert state(lane) == asleep(*(f"{number:02d}" for number in range(20)))
