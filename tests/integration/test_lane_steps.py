"""What happens when a lane dies between any two steps: one test for each row of DESIGN section 3."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.kafka_cluster import KafkaLaneCluster
from streams.kafka_producer import KafkaProducer
from streams.lane import Step
from streams.lane_factory import MakeCluster
from streams.ports import FencedError, LaneLostError, OutRecord, StateChange
from tests.integration.conftest import Deployment
from tests.integration.lane_rig import COMMANDS, DiedError, Rig
from tests.waiting import wait_until


@pytest.fixture
def rig(deployment: Deployment) -> Rig:
    """A partition of its own, with a run that has five events sent and none processed."""
    rig = Rig(deployment.settings, deployment.next_partition())
    rig.log(rig.run_id(), 5)
    return rig


def dying_at(step: Step) -> Callable[[Step], None]:
    """A hook that ends the process at a step."""

    def hook(reached: Step) -> None:
        if reached is step:
            raise DiedError

    return hook


class DiesBeforeCommit(KafkaProducer):
    """All records of the transaction reach the broker; the commit is never asked for."""

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord], name: bytes) -> None:
        super().produce(changes, outputs, name)
        self._producer.flush(30)
        raise DiedError


class CommitAnswerLost(KafkaProducer):
    """The broker commits, but the client never hears of it."""

    def _commit(self) -> None:
        super()._commit()
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))


class CommitRequestLost(KafkaProducer):
    """The commit never reaches the broker, and the client does not know that."""

    def _commit(self) -> None:
        self._producer.flush(30)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the request was lost"))


def with_producer(kind: type[KafkaProducer]) -> MakeCluster:
    """Clusters whose producers are of this kind."""

    class Cluster(KafkaLaneCluster):
        def producer(self, index: int) -> KafkaProducer:
            return kind(self._config, self._partition, index, self._stopping)

    return Cluster


@pytest.mark.parametrize("step", [Step.TAKEN, Step.DECIDED])
def test_dies_after_steps_1_to_3__nothing_is_visible_and_the_commands_are_taken_again(
    rig: Rig, step: Step
) -> None:
    lane = rig.owner(at_step=dying_at(step))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    assert rig.events() == []
    lane.close()

    successor = rig.owner()
    assert len(rig.commands(successor)) == 5
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()


def test_dies_in_step_4_before_the_commit__the_next_owner_aborts_it(rig: Rig) -> None:
    lane = rig.owner(make_cluster=with_producer(DiesBeforeCommit))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))

    successor = rig.owner(new_disk=True)
    assert rig.events() == []
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()


def test_commit_unknown_but_done__the_lane_is_restored_and_the_watermark_tells(rig: Rig) -> None:
    lane = rig.owner(make_cluster=with_producer(CommitAnswerLost))
    taken = rig.commands(lane)
    with pytest.raises(LaneLostError):
        lane.process(taken)

    lane.open()
    assert lane.watermark(COMMANDS) == taken[-1].offset
    assert lane.process(taken).skipped == 5
    lane.close()
    rig.assert_exactly_once()


def test_commit_unknown_and_not_done__the_lane_is_restored_and_takes_the_commands_again(rig: Rig) -> None:
    lane = rig.owner(make_cluster=with_producer(CommitRequestLost))
    with pytest.raises(LaneLostError):
        lane.process(rig.commands(lane))
    lane.close()

    successor = rig.owner()
    assert successor.watermark(COMMANDS) == -1
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()


def test_dies_after_the_commit__restore_replays_the_changelog_from_the_stored_position(rig: Rig) -> None:
    lane = rig.owner(at_step=dying_at(Step.COMMITTED))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    lane.close()
    wait_until(lambda: len(rig.events()) == 5, "what was committed is visible")

    successor = rig.owner()
    assert rig.commands(successor) == []
    rig.log(rig.run_ids[0])
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()


def test_dies_after_the_store_was_written__the_commands_come_again_and_are_skipped(rig: Rig) -> None:
    lane = rig.owner(at_step=dying_at(Step.STORED))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    lane.close()

    successor = rig.owner()
    assert successor.process(rig.all_commands()).skipped == 5
    successor.close()
    rig.assert_exactly_once()


@pytest.mark.parametrize("step", list(Step))
def test_dies_anywhere_and_the_disk_is_gone__restore_from_the_changelogs_start(rig: Rig, step: Step) -> None:
    first = rig.owner()
    first.process(rig.commands(first))
    first.close()
    rig.log(rig.run_ids[0], 3)
    lane = rig.owner(at_step=dying_at(step))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    lane.close()

    successor = rig.owner(new_disk=True)
    successor.process(rig.all_commands())
    successor.close()
    rig.assert_exactly_once()


def test_a_zombie_wakes_up__it_is_fenced_and_nothing_of_its_work_is_visible(rig: Rig) -> None:
    def successor_works(step: Step) -> None:
        if step is Step.DECIDED:
            successor = rig.owner(new_disk=True)
            successor.process(rig.commands(successor))
            successor.close()

    zombie = rig.owner(at_step=successor_works)
    with pytest.raises(FencedError):
        zombie.process(rig.commands(zombie))
    zombie.close()
    rig.assert_exactly_once()


def test_a_zombie_is_fenced_whichever_id_of_the_ring_comes_next(rig: Rig) -> None:
    zombie = rig.owner()
    zombie.process(rig.commands(zombie))
    rig.log(rig.run_ids[0], 2)
    successor = rig.owner(new_disk=True)
    successor.process(rig.commands(successor))
    for _ in range(2):
        with pytest.raises(LaneLostError):
            zombie.process(rig.commands(zombie))
    zombie.close()
    successor.close()
    rig.assert_exactly_once()
