"""The ring of a lane's transactional ids, on the in-memory Kafka and on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams.lane_log import LaneLog
from streams.ports import LaneCluster, LaneLostError, TransactionalProducer
from tests.simulation.cluster_sides import Side
from tests.simulation.contract_steps import restored, state


class Between:
    """A cluster that does something when the first transactional id is taken over and the second is not yet."""

    def __init__(self, cluster: LaneCluster, then: Callable[[], None]) -> None:
        self._cluster = cluster
        self._then = then

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def producer(self, index: int) -> TransactionalProducer:
        """See `streams.ports.LaneCluster`."""
        producer = self._cluster.producer(index)
        if index == 0:
            fence = producer.fence

            def fence_and_then() -> None:
                fence()
                self._then()

            producer.fence = fence_and_then  # type: ignore[method-assign]
        return producer


def commit(log: LaneLog, name: str) -> None:
    """A transaction."""
    log.produce(state(name), [])
    log.commit()


@pytest.mark.parametrize("before", [0, 1], ids=["as many by each id", "one more by the first id"])
def test_of_two_that_open_at_the_same_time_one_can_write(side: Side, before: int) -> None:
    """Both have seen the same state: if both could write, commands would take effect twice."""
    first = LaneLog(side.partition, side.lane())
    second = LaneLog(side.partition, side.lane())
    names = []
    for number, log in enumerate([first, second]):
        log.fence()
        for count in range(before):
            names.append(f"{number}{count}")
            commit(log, names[-1])

    first.cluster = Between(side.lane(), second.fence)  # type: ignore[assignment]
    first.fence()
    written = []
    for name, log in (("first", first), ("second", second)):
        try:
            commit(log, name)
            written.append(name)
        except LaneLostError:
            continue
    assert written == ["second"]
    assert restored(side.lane()) == state(*names, "second")
