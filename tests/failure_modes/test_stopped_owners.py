"""An owner that was stopped goes on writing after another one took its partition over.

Elsewhere: a paused process, or one cut off from the coordinator, believes in a lease that has run out.
`tests/crash/test_torture.py` does it to whole workers, under load.
"""

from __future__ import annotations

import pytest

from streams.lane import Step
from streams.ports import LaneLostError
from tests.integration.lane_rig import Rig


@pytest.mark.parametrize("stopped_at", [Step.TAKEN, Step.DECIDED, Step.PRODUCED])
def test_what_it_has_not_committed_never_shows(rig: Rig, stopped_at: Step) -> None:
    run_id = rig.run_id()
    rig.log(run_id, 3)

    is_stopped = False

    def others_work(step: Step) -> None:
        nonlocal is_stopped
        if step is stopped_at and not is_stopped:
            is_stopped = True
            successor = rig.owner(new_disk=True)
            successor.process(rig.commands(successor))
            rig.log(run_id, 2)
            successor.process(rig.commands(successor))
            successor.close()

    stopped = rig.owner(at_step=others_work)
    with pytest.raises(LaneLostError):
        stopped.process(rig.commands(stopped))
    rig.assert_exactly_once()

    stopped.open()
    assert rig.commands(stopped) == []
    rig.log(run_id)
    stopped.process(rig.commands(stopped))
    stopped.close()
    rig.assert_exactly_once()


def test_what_it_has_committed_stays_and_its_late_local_write_harms_nothing(rig: Rig) -> None:
    run_id = rig.run_id()
    rig.log(run_id, 3)
    disk = rig.disk
    is_stopped = False

    def others_work(step: Step) -> None:
        nonlocal is_stopped
        if step is Step.COMMITTED and not is_stopped:
            is_stopped = True
            successor = rig.owner(new_disk=True)
            rig.log(run_id, 2)
            successor.process(rig.commands(successor))
            successor.close()

    stopped = rig.owner(at_step=others_work)
    stopped.process(rig.commands(stopped))
    rig.log(run_id)
    with pytest.raises(LaneLostError):
        stopped.process(rig.commands(stopped))
    stopped.close()

    rig.disk = disk
    again = rig.owner()
    again.process(rig.commands(again))
    again.close()
    rig.assert_exactly_once()
