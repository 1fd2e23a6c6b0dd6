"""A command that was done is done again, since its id was forgotten when the partition moved.

Elsewhere: the store of seen ids is local, is written apart from the effect, or is restored without its last entries.
"""

from __future__ import annotations

from typing import Any

import pytest

from streams.lane import Lane, Step
from streams.ports import LaneLostError
from tests.integration.lane_rig import DiedError, Rig

EVENT = {"type": "log", "line": "once"}
CALL = {"toolId": "t", "inputHash": "h"}


def work(rig: Rig, lane: Lane) -> None:
    """Process all that waits, and hand over."""
    lane.process(rig.commands(lane))
    lane.close()


def test_an_id_is_known_to_every_later_owner_and_to_one_with_an_old_disk(rig: Rig) -> None:
    run_id = rig.run_id()
    rig.send(run_id, "run.submit", command_id="submit", headers=rig.address("first"), name="work")
    rig.send(run_id, "events.append", command_id="append", headers=rig.address("first"), event=EVENT)
    work(rig, rig.owner())
    old_disk = rig.disk

    for owner in range(3):
        lane = rig.owner(new_disk=owner < 2)
        if owner == 2:
            lane.close()
            rig.disk = old_disk
            lane = rig.owner()
        for command_id, type_ in (("submit", "run.submit"), ("append", "events.append")):
            rig.send(
                run_id, type_, command_id=command_id, headers=rig.address(f"again {owner}"), name="other"
            )
        work(rig, lane)

    assert [event["commandId"] for event in rig.events()] == ["submit", "append"]
    assert len(rig.read("run-dispatch")) == 1
    first, *others = rig.replies().values()
    assert len(others) == 3
    assert all(answers == first for answers in others)


@pytest.mark.parametrize("step", list(Step))
def test_an_id_that_comes_twice_around_a_crash_counts_once(rig: Rig, step: Step) -> None:
    def dies(reached: Step) -> None:
        if reached is step:
            raise DiedError

    run_id = rig.run_id()

    def send(owner: str) -> None:
        rig.send(run_id, "events.append", command_id="append", event=EVENT)
        rig.send(run_id, "call.claim", command_id="claim", headers=rig.address(owner), owner=owner, **CALL)

    send("first")
    lane = rig.owner(at_step=dies)
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    send("second")
    lane.close()
    work(rig, rig.owner(new_disk=True))
    send("third")
    work(rig, rig.owner())
    assert [(event["commandId"], event["seq"]) for event in rig.events()] == [("append", 1)]
    # The id has the call, whoever sends it: one number was handed out, and all three are told the same.
    told = rig.replies()
    assert sorted(told) == ["first", "second", "third"]
    assert told["first"][0]["result"]["fencingNumber"] == 1
    assert told["first"] == told["second"] == told["third"]


def test_a_fencing_number_is_handed_out_once_however_often_the_partition_moves(rig: Rig) -> None:
    run_id = rig.run_id()
    old_disk, given = rig.disk, []

    def ask(type_: str, name: str, **fields: Any) -> dict[str, Any]:
        """What a new owner answers, on an empty disk or on the first one's."""
        rig.send(run_id, type_, command_id=name, headers=rig.address(name), **CALL, **fields)
        if name == "third":
            rig.disk = old_disk
        work(rig, rig.owner(new_disk=name != "third"))
        answers: list[dict[str, Any]] = rig.replies()[name]
        assert len(answers) == 1
        return answers[0]

    lane = rig.owner()
    lane.close()
    for name in ("first", "second", "third"):
        answer = ask("call.claim", name, owner=name)
        assert answer["result"]["status"] == "claimed"
        given.append(answer["result"]["fencingNumber"])
        assert ask("call.claim", f"beside {name}", owner="other")["result"]["owner"] == name
        if name != "third":
            released = ask(
                "call.publish", f"release {name}", fencingNumber=given[-1], error="e", onFailure="release"
            )
            assert released["ok"]
    assert given == [1, 2, 3]
    assert ask("call.publish", "late", fencingNumber=2, value="late")["error"]["code"] == "CALL_FENCED"
    assert ask("call.publish", "right", fencingNumber=3, value="right")["ok"]
    assert ask("call.claim", "after", owner="other")["result"]["value"] == "right"


def test_two_clients_send_one_id_to_two_owners_in_turn(rig: Rig) -> None:
    run_id = rig.run_id()
    first, second = rig.owner(), None
    for number in range(6):
        rig.send(run_id, "events.append", command_id=f"id {number // 2}", event=EVENT)
        if number % 2 == 0:
            first.process(rig.commands(first))
            second = rig.owner(new_disk=True)
        else:
            assert second is not None
            second.process(rig.commands(second))
            with pytest.raises(LaneLostError):
                first.process(rig.all_commands()[-1:])
            second.close()
            first.open()
    first.close()
    assert [event["commandId"] for event in rig.events()] == ["id 0", "id 1", "id 2"]
