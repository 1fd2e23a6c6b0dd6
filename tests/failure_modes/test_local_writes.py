"""A local write survives a crash though the log never took it: the store is ahead of the log.

Elsewhere: a state store is written before the transaction commits, and what was aborted stays in it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.kafka_producer import KafkaProducer
from streams.lane import Lane, Step
from streams.lane_factory import MakeCluster
from streams.ports import LaneLostError
from tests.integration.lane_rig import DiedError, Rig
from tests.integration.test_lane_steps import CommitRequestLost, with_producer


def content(lane: Lane) -> dict[bytes, bytes]:
    """All that the lane has stored locally, without the stamp, which begins with a NUL."""
    assert lane._store is not None
    return dict(lane._store.scan(b"", b"\1"))


def dying_at(step: Step) -> Callable[[Step], None]:
    """A hook that ends the process at a step."""

    def hook(reached: Step) -> None:
        if reached is step:
            raise DiedError

    return hook


class CommitRefused(KafkaProducer):
    """The transaction is aborted when it should be committed."""

    def _commit(self) -> None:
        self._producer.abort_transaction(30)
        raise KafkaException(KafkaError(KafkaError.INVALID_TXN_STATE, "aborted"))


def check_disk(rig: Rig, kept: dict[bytes, bytes]) -> None:
    """What the disk holds after the crash is what the log holds, and not more than it held before."""
    survivor = rig.owner()
    after = content(survivor)
    survivor.close()
    disk = rig.disk
    restored = rig.owner(new_disk=True)
    assert content(restored) == after == kept
    restored.process(rig.commands(restored))
    restored.close()
    rig.assert_exactly_once()

    rig.disk = disk
    behind = rig.owner()
    assert content(behind) != kept
    behind.close()


@pytest.mark.parametrize("step", [Step.TAKEN, Step.DECIDED, Step.PRODUCED])
def test_a_crash_before_the_commit_leaves_nothing_on_the_disk(rig: Rig, step: Step) -> None:
    run_id = rig.run_id()
    rig.log(run_id, 2)
    first = rig.owner()
    first.process(rig.commands(first))
    kept = content(first)
    first.close()

    rig.log(run_id, 3)
    lane = rig.owner(at_step=dying_at(step))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    assert content(lane) == kept
    lane.close()
    check_disk(rig, kept)


@pytest.mark.parametrize("producer", [CommitRefused, CommitRequestLost])
def test_a_transaction_that_is_not_committed_leaves_nothing_on_the_disk(
    rig: Rig, producer: type[KafkaProducer]
) -> None:
    run_id = rig.run_id()
    rig.log(run_id, 2)
    first = rig.owner()
    first.process(rig.commands(first))
    kept = content(first)
    first.close()

    rig.log(run_id, 3)
    cluster: MakeCluster = with_producer(producer)
    lane = rig.owner(make_cluster=cluster)
    with pytest.raises(LaneLostError):
        lane.process(rig.commands(lane))
    assert content(lane) == kept
    lane.close()
    check_disk(rig, kept)
