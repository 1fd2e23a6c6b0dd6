"""Repairs of half-marked transactions that are interrupted themselves, on the in-memory Kafka and on a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from streams.healing import Healing
from streams.lane_log import RING_SIZE, LaneLog
from streams.ports import HEAL_KEY, LaneCluster, LaneLostError, OutRecord, TransactionalProducer
from tests.simulation.cluster_sides import Side, until
from tests.simulation.contract_steps import (
    CHANGELOG,
    EVENTS,
    TERMINALS,
    event,
    keys,
    opened,
    restored,
    state,
    transaction,
)

ALL = (EVENTS, TERMINALS, CHANGELOG)
Written = Callable[[list[OutRecord]], list[OutRecord]]
"""Which of some records reach the log."""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Healing, "marker_patience_s", 0.5)


class KilledError(LaneLostError):
    """The process ended here."""


class Dying:
    """A cluster whose producers die in `write`, when some records are in the log; the next owner aborts them."""

    def __init__(self, cluster: LaneCluster, written: Written) -> None:
        self._cluster = cluster
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def producer(self, index: int) -> Any:
        """See `streams.ports.LaneCluster`."""
        return _DyingProducer(self._cluster.producer(index), self._written)


class _DyingProducer:
    def __init__(self, producer: TransactionalProducer, written: Written) -> None:
        self._producer = producer
        self._written = written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def write(self, records: Iterable[OutRecord], *, commit: bool) -> None:
        self._producer.write(self._written(list(records)), commit=False)
        raise KilledError


def open_log(side: Side, cluster: LaneCluster | None = None) -> LaneLog:
    """A new owner, up to where its lane would restore the state."""
    log = LaneLog(side.partition, cluster or side.lane())
    log.fence()
    log.heal()
    return log


def open_and_die(side: Side, written: Written = list) -> None:
    """A new owner that dies while it repairs, with some of its records in the log."""
    with pytest.raises(KilledError):
        open_log(side, Dying(side.lane(), written))  # type: ignore[arg-type]


def first(count: int) -> Written:
    """The first records."""
    return lambda records: records[:count]


def those_of(topic: str) -> Written:
    """The records of one topic."""
    return lambda records: [record for record in records if record.topic == topic]


def half_marked(side: Side, *lost: str) -> None:
    """The transaction `a`, of two events, a terminal state and two changes, without markers in these topics."""
    producer = side.losing(0, lost)
    producer.fence()
    outputs = [event(side, "a1"), event(side, "a2"), event(side, "a1", TERMINALS)]
    producer.produce(state("a1", "a2"), outputs, transaction(side, "a"))
    producer.commit()


def followed(side: Side, *outputs: OutRecord) -> None:
    """The transaction `b` of the other id, which the lane writes only when `a` is committed; it overwrites `a2`."""
    producer = opened(side, 1)
    changes = [*state("b"), (b"a2", b"by b")]
    producer.produce(changes, outputs, transaction(side, "b"))
    producer.commit()


def readable(side: Side, topic: str, *expected: bytes) -> None:
    """These keys, and nothing else but the empty records of repairs, come to be readable."""

    def present(found: Sequence[Any]) -> list[bytes]:
        return [seen.key for seen in found if seen.key != HEAL_KEY]

    until(side, topic, lambda found: present(found) == list(expected))


def state_in(side: Side) -> dict[bytes, bytes | None]:
    """The state that a restore comes to."""
    return {key: value for key, value in restored(side.lane()) if key != HEAL_KEY}


def ends(side: Side) -> list[int]:
    """Where the partition of each topic ends for readers, without its repairs."""
    return [len(keys(side, topic, 0)) for topic in ALL]


@pytest.mark.parametrize("deaths", [1, 3])
@pytest.mark.parametrize(
    "lost", [[EVENTS], [CHANGELOG], [EVENTS, CHANGELOG]], ids=lambda lost: "+".join(lost)
)
def test_what_an_interrupted_repair_has_aborted_is_written_once_more(
    lossy: Side, lost: list[str], deaths: int
) -> None:
    half_marked(lossy, *lost)
    for _ in range(deaths):
        open_and_die(lossy)
    open_log(lossy)
    readable(lossy, EVENTS, b"a1", b"a2")
    readable(lossy, TERMINALS, b"a1")
    assert state_in(lossy) == dict(state("a1", "a2"))
    before = ends(lossy)
    open_log(lossy)
    assert ends(lossy) == before


def test_what_was_written_again_in_part_is_written_whole(lossy: Side) -> None:
    half_marked(lossy, EVENTS, CHANGELOG)
    open_and_die(lossy)
    open_and_die(lossy, first(1))
    open_and_die(lossy, first(3))
    open_log(lossy)
    readable(lossy, EVENTS, b"a1", b"a2")
    assert state_in(lossy) == dict(state("a1", "a2"))


def test_the_state_of_a_later_transaction_holds(lossy: Side) -> None:
    half_marked(lossy, CHANGELOG)
    followed(lossy)
    open_and_die(lossy)
    open_log(lossy)
    readable(lossy, EVENTS, b"a1", b"a2")
    assert state_in(lossy) == {b"a1": b"A1", b"a2": b"by b", b"b": b"B"}


def test_a_repair_that_reached_some_partitions_tells_of_the_others(lossy: Side) -> None:
    """Only the partition that was reached held the sign that the transaction was committed."""
    half_marked(lossy, *ALL)
    followed(lossy)
    open_and_die(lossy, those_of(CHANGELOG))
    open_log(lossy)
    readable(lossy, EVENTS, b"a1", b"a2")
    readable(lossy, TERMINALS, b"a1")
    assert state_in(lossy) == {b"a1": b"A1", b"a2": b"by b", b"b": b"B"}


@pytest.mark.parametrize("deaths", [1, 2])
def test_what_is_committed_nowhere_stays_aborted(lossy: Side, deaths: int) -> None:
    half_marked(lossy, *ALL)
    for _ in range(deaths):
        open_and_die(lossy, first(deaths))
    log = open_log(lossy)
    for topic in (EVENTS, TERMINALS):
        readable(lossy, topic)
    assert state_in(lossy) == {}
    log.produce(state("c"), [event(lossy, "c")])
    log.commit()
    readable(lossy, EVENTS, b"c")


def test_what_was_written_again_and_lost_its_markers_is_repaired_too(lossy: Side) -> None:
    half_marked(lossy, EVENTS)
    open_and_die(lossy)
    log = LaneLog(lossy.partition, lossy.lane())
    log.fence()
    log._ring = [_losing(lossy, index) for index in range(RING_SIZE)]
    log.heal()
    assert lossy.lane().hung()
    open_and_die(lossy)
    open_log(lossy)
    readable(lossy, EVENTS, b"a1", b"a2")


def _losing(side: Side, index: int) -> TransactionalProducer:
    producer = side.losing(index, [EVENTS])
    producer.fence()
    return producer
