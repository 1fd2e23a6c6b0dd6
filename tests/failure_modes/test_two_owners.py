"""Two recover the same work at once, each believing that it is the only one.

Elsewhere: both read what is open, both take it, and it is done twice. Here they fight over a partition for many rounds.
"""

from __future__ import annotations

import threading
import time

from streams.lane import Lane
from streams.ports import LaneLostError
from tests.integration.lane_rig import Rig

COMMANDS = 60
BATCH = 3
PATIENCE_S = 120.0


class Owner(threading.Thread):
    """Opens the lane again whenever it loses it, until all is done."""

    def __init__(self, rig: Rig, lane: Lane) -> None:
        super().__init__()
        self.rig, self.lane = rig, lane
        self.done = 0
        self.losses = 0
        self.problem: BaseException | None = None

    def run(self) -> None:
        """Process little by little."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < deadline:
                try:
                    commands = self.rig.commands(self.lane)[:BATCH]
                    if not commands:
                        return
                    self.done += self.lane.process(commands).applied
                except LaneLostError:
                    self.losses += 1
                    self._open()
            raise AssertionError("not done in time")
        except BaseException as problem:
            self.problem = problem
        finally:
            self.lane.close()

    def _open(self) -> None:
        while True:
            try:
                self.lane.open()
                return
            except LaneLostError:
                self.losses += 1


def test_two_owners_that_take_the_lane_from_each_other_do_everything_once(rig: Rig) -> None:
    run_id = rig.run_id()
    rig.log(run_id, COMMANDS)
    owners = [Owner(rig, rig.owner(new_disk=True)) for _ in range(2)]
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join(PATIENCE_S + 30)
    assert [owner.problem for owner in owners] == [None, None]
    assert sum(owner.losses for owner in owners) >= 1
    assert sum(owner.done for owner in owners) <= COMMANDS
    rig.assert_exactly_once()

    last = rig.owner(new_disk=True)
    assert rig.commands(last) == []
    last.close()
