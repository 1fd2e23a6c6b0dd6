"""What the suites do that run on the in-memory Kafka and on a real broker."""

from __future__ import annotations

from collections.abc import Callable

from streams.lane_log import RING_SIZE
from streams.ports import LaneCluster, OutRecord, StateChange, TransactionalProducer
from streams.transaction_names import TRANSACTION, own_name
from tests.simulation.cluster_sides import Side, until

CHANGELOG, EVENTS, COMMANDS, REPLIES = "state-changelog", "run-events", "run-commands", "replies"
TERMINALS, REFUSING = "run-terminals", "queue-deliveries"


def opened(side: Side, index: int = 0) -> TransactionalProducer:
    """A new owner's producer."""
    producer = side.lane().producer(index)
    producer.connect()
    producer.fence()
    return producer


def state(*names: str) -> list[StateChange]:
    """State changes."""
    return [(name.encode(), name.upper().encode()) for name in names]


def event(side: Side, name: str, topic: str = EVENTS) -> OutRecord:
    """An output in the lane's own partition, which names the transaction that the tests give it."""
    return OutRecord(topic, side.partition, name.encode(), b"v", [(TRANSACTION, transaction(side, name))])


def transaction(side: Side, name: str) -> bytes:
    """The name of a transaction whose records begin with the same letter: `a` is the first of an opening."""
    number = ord(name[0]) - ord("a")
    return own_name(side.partition, number % RING_SIZE, "opening", number + 1).encode()


def is_a(side: Side) -> Callable[[frozenset[str]], bool]:
    """Whether names are those of the test's transaction `a`."""
    return lambda names: transaction(side, "a").decode() in names


def write(
    side: Side, producer: TransactionalProducer, *names: str, outputs: list[OutRecord] | None = None
) -> None:
    """Produce a transaction, not yet committed; it is called after its first record."""
    if outputs is None:
        outputs = [event(side, name) for name in names]
    producer.produce(state(*names), outputs, transaction(side, names[0]))


def write_and_commit(
    side: Side, producer: TransactionalProducer, *names: str, outputs: list[OutRecord] | None = None
) -> None:
    """A whole transaction; where a client tells what is wrong with it is the client's business."""
    write(side, producer, *names, outputs=outputs)
    producer.commit()


def keys(side: Side, topic: str, count: int) -> list[bytes | None]:
    """The keys that are readable, once there are so many."""
    return [seen.key for seen in until(side, topic, lambda found: len(found) >= count)]


def restored(lane: LaneCluster, start: int = 0) -> list[StateChange]:
    """What a restore reads up to the changelog's present end."""
    found: list[StateChange] = []
    end = lane.changelog_end()
    for changes, position in lane.read_changelog(start, end):
        assert changes
        assert lane.is_committed(position - 1)
        found += changes
    return found


def half_marked(side: Side, *lost: str) -> TransactionalProducer:
    """The next owner's producer, after one whose transaction `a` lost its markers in these topics."""
    producer = side.losing(0, lost)
    producer.fence()
    outputs = [event(side, "a"), event(side, "a", TERMINALS), event(side, "a", REPLIES)]
    producer.produce(state("a"), outputs, transaction(side, "a"))
    producer.commit()
    return opened(side)
