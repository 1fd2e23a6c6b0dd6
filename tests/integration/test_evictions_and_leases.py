"""What a run's timers promise while owners die at every step: evictions are finished, leases pass on once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle

import pytest

from agents.run import eviction
from streams.lane import Lane, Step
from tests.integration.conftest import Deployment
from tests.integration.lane_rig import DiedError, Rig

RECORDS_PER_STEP = 10
CALLS = 2 * RECORDS_PER_STEP + 5
LEASE_MS = 60_000

disks = pytest.mark.parametrize("new_disk", [False, True], ids=["disk kept", "disk lost"])


@pytest.fixture
def rig(deployment: Deployment) -> Rig:
    """A partition of its own."""
    return Rig(deployment.settings, deployment.next_partition())


def ways_to_die() -> Iterator[Callable[[Step], None]]:
    """Hooks for owners: each dies at another step, and every fourth lives."""

    def dying_at(step: Step | None) -> Callable[[Step], None]:
        def hook(reached: Step) -> None:
            if reached is step:
                raise DiedError

        return hook

    return (dying_at(step) for step in cycle([Step.DECIDED, Step.PRODUCED, Step.COMMITTED, None]))


def settle(rig: Rig, lane: Lane) -> None:
    """Let everything become visible that a lane has committed: the next owner waits for that."""
    lane.close()
    rig.owner().close()


def stored_of(rig: Rig, run_id: str) -> dict[str, int]:
    """How many records each table has of a run, by the changelog."""
    state = {record.key(): record.value() for record in rig.read("state-changelog")}
    counts: dict[str, int] = {}
    for key, value in state.items():
        if key is not None and value is not None and run_id.encode() in key:
            table = key.split(b"\0")[0].decode()
            counts[table] = counts.get(table, 0) + 1
    return counts


@disks
def test_an_eviction_in_steps_is_finished_over_deaths(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, new_disk: bool
) -> None:
    monkeypatch.setattr(eviction, "MAX_SWEPT_RECORDS", RECORDS_PER_STEP)
    run_id = rig.run_id()
    rig.log(run_id, 3)
    for number in range(CALLS):
        rig.send(run_id, "call.claim", toolId="t", inputHash=f"{number:06d}", owner="o")
    rig.send(run_id, "call.publish", toolId="t", inputHash="000000", fencingNumber=1, value="v")
    rig.send(run_id, "child.terminal.set", eventKey="k", data=1)
    rig.send(run_id, "trace.add", trace={"source": "coordinator", "phase": "p", "ts": 1, "ms": 2})
    rig.send(run_id, "terminal.set", status="completed")
    rig.send(run_id, "run.finish")
    lane = rig.owner()
    lane.process(rig.commands(lane))
    finished_at = lane.clock
    lane.close()

    lane = rig.owner(new_disk=new_disk)
    assert stored_of(rig, run_id)["run.call"] == CALLS
    evicts_at = lane.next_due
    assert evicts_at == finished_at + eviction.EVICTED_AFTER_FINISH_MS
    assert lane.process((), evicts_at - 1).timers == 0
    lane.close()

    for at_step in ways_to_die():
        lane = rig.owner(at_step=at_step, new_disk=new_disk)
        if lane.next_due > evicts_at:
            break
        with suppress(DiedError):
            lane.process((), evicts_at)
        lane.close()
    # Nothing that is left of it is asked for any more.
    for question in ("call.debug", "trace.list", "terminal.get", "events.list"):
        rig.send(run_id, question, headers=rig.address(question))
    rig.send(run_id, "child.terminal.get", eventKey="k", headers=rig.address("child"))
    lane.process(rig.commands(lane))
    settle(rig, lane)
    results = {name: reply["result"] for name, (reply,) in rig.replies().items()}
    assert results == {
        "call.debug": {"size": 0, "waiters": 0, "entries": []},
        "trace.list": {"traces": []},
        "terminal.get": {"terminal": None},
        "events.list": {"events": [], "latestSeq": 4, "firstSeq": 0},
        "child": {"state": None},
    }
    stored = stored_of(rig, run_id)
    assert {table for table in stored if table.startswith("run.")} == {"run.head"}
    assert stored["run.head"] == 1


@disks
def test_a_lease_that_runs_out_passes_on_once_over_deaths(rig: Rig, new_disk: bool) -> None:
    run_id = rig.run_id()
    call = {"toolId": "t", "inputHash": "h"}
    rig.send(run_id, "call.claim", **call, owner="first", leaseMs=LEASE_MS, headers=rig.address("first"))
    waits = {"timeoutMs": 30_000, "claim": True, "leaseMs": LEASE_MS}
    rig.send(run_id, "call.renew", **call, fencingNumber=1, leaseMs=1000)
    for waiter in ("second", "third"):
        rig.send(run_id, "call.await", **call, **waits, owner=waiter, headers=rig.address(waiter))
    rig.send(run_id, "call.await", **call, timeoutMs=30_000, headers=rig.address("reader"))
    lane = rig.owner()
    lane.process(rig.commands(lane))
    runs_out = lane.next_due
    lane.close()

    for at_step in ways_to_die():
        lane = rig.owner(at_step=at_step, new_disk=new_disk)
        if lane.next_due > runs_out:
            break
        with suppress(DiedError):
            lane.process((), runs_out)
        lane.close()
    # The first one's result comes too late, the second one's answers the others.
    for name, number in (("late", 1), ("in time", 2)):
        rig.send(run_id, "call.publish", **call, fencingNumber=number, value=name, headers=rig.address(name))
    lane.process(rig.commands(lane))
    settle(rig, lane)

    answers = rig.replies()
    assert {len(replies) for replies in answers.values()} == {1}, json.dumps(answers, indent=1)
    assert answers["first"][0]["result"]["fencingNumber"] == 1
    second = answers["second"][0]["result"]
    assert (second["status"], second["fencingNumber"]) == ("claimed", 2)
    assert second["leaseExpiresAt"] == runs_out + LEASE_MS
    assert (answers["late"][0]["error"]["code"], answers["late"][0]["error"]["fencingNumber"]) == (
        "CALL_FENCED",
        2,
    )
    assert answers["in time"][0]["result"] == {"published": True, "answered": 2}
    for name in ("third", "reader"):
        assert answers[name][0]["result"] == {"status": "hit", "ok": True, "value": "in time"}
