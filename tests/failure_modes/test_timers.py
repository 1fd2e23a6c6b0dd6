"""A timer that was recorded never fires, or fires twice.

Elsewhere: timers live in memory, on the disk of one machine, or are scheduled after the change that needs them.
`test_timer_storms.py` has many at once; `test_poison_messages.py` those that fail.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams.lane import Step
from tests.contract.bare_client import BareClient
from tests.integration.lane_rig import DiedError, Rig
from tests.worker_process import WorkerProcess

TIMEOUT_MS = 200


def dying_at(step: Step) -> Callable[[Step], None]:
    """A hook that ends the process at a step."""

    def hook(reached: Step) -> None:
        if reached is step:
            raise DiedError

    return hook


def wait_for_nothing(rig: Rig) -> None:
    """Ask for an event that never comes."""
    rig.send(rig.run_id(), "events.list", headers=rig.address("asks"), timeoutMs=TIMEOUT_MS)


def test_it_fires_once_whoever_owns_the_lane(rig: Rig) -> None:
    wait_for_nothing(rig)
    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    assert rig.replies() == {}

    successor = rig.owner(new_disk=True)
    due = successor.next_due
    assert successor.process((), due - 1).timers == 0
    assert successor.process((), due).timers == 1
    assert successor.process((), due + 10_000).timers == 0
    successor.close()
    assert len(rig.replies()["asks"]) == 1


@pytest.mark.parametrize("new_disk", [False, True], ids=["disk kept", "disk lost"])
@pytest.mark.parametrize("step", [Step.DECIDED, Step.PRODUCED, Step.COMMITTED])
def test_a_crash_when_it_is_set_and_a_crash_when_it_fires(rig: Rig, step: Step, new_disk: bool) -> None:
    wait_for_nothing(rig)
    lane = rig.owner(at_step=dying_at(step))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    lane.close()

    lane = rig.owner(new_disk=new_disk)
    if commands := rig.commands(lane):
        lane.process(commands)
    due = lane.next_due
    assert lane.process((), due - 1).timers == 0
    lane.close()

    lane = rig.owner(at_step=dying_at(step), new_disk=new_disk)
    with pytest.raises(DiedError):
        lane.process((), due)
    lane.close()

    lane = rig.owner(new_disk=new_disk)
    lane.process((), due)
    assert lane.process((), due + 60_000).timers == 0
    lane.close()
    assert len(rig.replies()["asks"]) == 1


def test_those_that_fell_due_while_no_worker_lived(worker: WorkerProcess, client: BareClient) -> None:
    run_ids = [f"nobody/{number}" for number in range(20)]
    asked = [client.ask("events.list", run_id, timeoutMs=1000 + 50 * at) for at, run_id in enumerate(run_ids)]
    # All waits are stored when what was sent after them is answered.
    for partition in range(client.partitions):
        run_id = next(run_id for run_id in run_ids if client.partition_of(run_id) == partition)
        client.refusal("run.status", run_id)
    worker.kill()
    worker.lose_disk()
    worker.start().wait_ready()
    for one in asked:
        assert client.reply(one)["result"]["events"] == []
    client.reader.catch_up("replies")
    ids = {one.correlation_id for one in asked}
    assert len(client.reader.records("replies", lambda record: record.key in ids)) == len(asked)
