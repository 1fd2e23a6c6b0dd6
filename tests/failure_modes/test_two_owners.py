"""Two recover the same work at once, each believing that it is the only one.

Elsewhere: both read what is open, both take it, and it is done twice. Here they fight over a partition for many rounds.
"""

from __future__ import annotations

import threading
import time

import pytest

from streams.lane import Lane
from streams.ports import LaneLostError
from tests.failure_modes.caller import Caller
from tests.integration.lane_rig import Rig

COMMANDS = 60
BATCH = 3
PATIENCE_S = 120.0
CALL = {"toolId": "t", "inputHash": "h"}
LEASE_MS = 1000


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


@pytest.mark.parametrize("commits", [False, True], ids=["in one batch", "in batches of one"])
@pytest.mark.parametrize("passes_ms", [LEASE_MS - 1, LEASE_MS, 10 * LEASE_MS])
def test_of_two_that_recover_one_call_one_gets_it(passes_ms: int, commits: bool) -> None:
    caller = Caller(commits=commits)
    died = caller.result("call.claim", **CALL, owner="died", leaseMs=LEASE_MS)
    caller.pass_time(passes_ms)
    first, second = (caller.result("call.claim", **CALL, owner=owner) for owner in ("first", "second"))
    if passes_ms < LEASE_MS:
        assert {first["status"], second["status"]} == {"pending"}
        return
    assert (first["status"], first["fencingNumber"]) == ("claimed", died["fencingNumber"] + 1)
    assert (second["status"], second["owner"]) == ("pending", "first")
    # Neither he who was thought dead nor he who came second may say what the result is.
    for number in (died["fencingNumber"], first["fencingNumber"] + 1):
        assert caller.refusal("call.publish", **CALL, fencingNumber=number, value="wrong") == "CALL_FENCED"
    caller.result("call.publish", **CALL, fencingNumber=first["fencingNumber"], value="right")
    assert caller.result("call.await", **CALL)["value"] == "right"


@pytest.mark.parametrize("is_released", [False, True], ids=["it ran out", "it was given back"])
def test_of_two_that_wait_to_recover_one_call_one_gets_it(is_released: bool) -> None:
    caller = Caller()
    died = caller.result("call.claim", **CALL, owner="died", leaseMs=LEASE_MS)
    for owner in ("first", "second"):
        waits = {"claim": True, "owner": owner, "leaseMs": 10 * LEASE_MS, "timeoutMs": 5 * LEASE_MS}
        assert caller.ask("call.await", **CALL, **waits) is None
    if is_released:
        given_back = {"fencingNumber": died["fencingNumber"], "error": "e", "onFailure": "release"}
        assert caller.result("call.publish", **CALL, **given_back)["answered"] == 1
    caller.pass_time(LEASE_MS)
    assert caller.result("call.claim", **CALL, owner="third")["owner"] == "first"
    (answer,), nothing = caller.answers[1:3]
    assert (answer["result"]["status"], answer["result"]["fencingNumber"]) == ("claimed", 2)
    assert nothing == []
    caller.pass_time(5 * LEASE_MS)
    caller.ask("run.status")
    assert [told["result"] for told in caller.answers[2]] == [{"status": "timeout"}]


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
