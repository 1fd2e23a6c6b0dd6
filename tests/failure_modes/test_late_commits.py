"""A commit that was given up arrives late, and ends the next transaction of the same producer.

Elsewhere: a client gives a request up, begins the next transaction under the same id and epoch, and the old request
commits half of it. `tests/integration/test_lane_steps.py` has the commits whose answer or request is lost for good.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.kafka_producer import KafkaProducer
from streams.lane import Step
from streams.lane_factory import MakeCluster
from streams.ports import LaneLostError
from tests.integration.lane_rig import Rig
from tests.integration.test_lane_steps import with_producer


class LateCommit:
    """The first commit of all producers is given up; `arrive` lets it reach the broker after all."""

    def __init__(self) -> None:
        self._pending: Callable[[], None] | None = None
        self._is_given_up = False

    def cluster(self) -> MakeCluster:
        """Clusters with such producers."""
        late = self

        class Producer(KafkaProducer):
            def _commit(self) -> None:
                if late._is_given_up:
                    super()._commit()
                    return
                late._is_given_up = True
                late._pending = super()._commit
                self._producer.flush(30)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer"))

            def close(self) -> None:
                """The old client lives on, as one in a process that hangs."""
                if late._pending is None:
                    super().close()

        return with_producer(Producer)

    def arrive(self) -> None:
        """The request reaches the broker."""
        assert self._pending is not None
        pending, self._pending = self._pending, None
        # What it is told does not matter: nobody listens any more.
        with suppress(KafkaException):
            pending()


@pytest.mark.parametrize(
    "arrives",
    [None, Step.TAKEN, Step.PRODUCED, Step.COMMITTED],
    ids=["before the lane is opened again", "before the next", "in the middle of the next", "after the next"],
)
def test_it_ends_its_own_transaction_or_none(rig: Rig, arrives: Step | None) -> None:
    run_id = rig.run_id()
    rig.log(run_id, 3)
    late = LateCommit()
    is_open_again = False

    def at_step(step: Step) -> None:
        if is_open_again and step is arrives and late._pending is not None:
            late.arrive()

    lane = rig.owner(make_cluster=late.cluster(), at_step=at_step)
    taken = rig.commands(lane)
    with pytest.raises(LaneLostError):
        lane.process(taken)
    if arrives is None:
        late.arrive()
    lane.open()
    is_open_again = True
    rig.log(run_id, 2)
    lane.process(rig.commands(lane))
    rig.log(run_id, 2)
    lane.process(rig.commands(lane))
    assert late._pending is None
    lane.close()
    rig.assert_exactly_once()

    successor = rig.owner(new_disk=True)
    assert rig.commands(successor) == []
    successor.close()
