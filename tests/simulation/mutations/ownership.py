"""Mutations: who may write, and when a lane stops."""

from __future__ import annotations

import pytest

from streams.lane_log import LaneLog
from streams.lane_runner import LaneRunner
from tests.simulation.memory_cluster import MemoryProducer
from tests.simulation.mutations.registry import mutation


def _fencing_only(patch: pytest.MonkeyPatch, indexes: set[int]) -> None:
    def careless(log: LaneLog) -> None:
        log.close()
        log._ring = [log.cluster.producer(index) for index in range(2)]
        log._opening, log._produced = log._new_id(), 0
        for producer in log._ring:
            producer.connect()
        for index, producer in enumerate(log._ring):
            assert isinstance(producer, MemoryProducer)
            known = producer._kafka.transactions.get(producer._writer)
            if index in indexes or known is None:
                producer.fence()
            else:
                producer._epoch, producer._crashes = known.epoch, producer._kafka.crashes

    patch.setattr(LaneLog, "fence", careless)


@mutation
def skip_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A new owner does not take the transactional ids over: the old one can go on."""
    _fencing_only(patch, set())


@mutation
def fence_one_id_of_the_ring_only(patch: pytest.MonkeyPatch) -> None:
    """The old owner's second id stays in force."""
    _fencing_only(patch, {0})


@mutation
def hand_over_without_waiting(patch: pytest.MonkeyPatch) -> None:
    """A lane is said to have stopped while its batch is in flight."""

    async def stop(runner: LaneRunner) -> None:
        runner._stopping = True
        runner._wake.set()
        runner._task = None
        runner.inbox.clear()

    patch.setattr(LaneRunner, "stop", stop)


@mutation
def close_a_lane_that_was_given_back(patch: pytest.MonkeyPatch) -> None:
    """A lane that is released and given back at once is closed under its runner."""

    async def release(runner: LaneRunner) -> None:
        runner._is_open = False
        await runner._in_thread(runner._open_threads, runner.lane.close)
        runner._set_state(type(runner.state).CLOSED)

    patch.setattr(LaneRunner, "release", release)
