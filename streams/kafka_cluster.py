"""How a lane sees a cluster of Apache Kafka. See `streams.ports.LaneCluster`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from schemas.topics import REPLIES, STATE_CHANGELOG, TOPICS
from streams.kafka_calls import CALL_S, LaneKafkaConfig, lost, passes, patiently
from streams.kafka_producer import KafkaProducer
from streams.ports import (
    HungTransaction,
    LaneLostError,
    Place,
    StateChange,
    TransactionalProducer,
)
from streams.transaction_names import names_in

_log = logging.getLogger(__name__)

_RESTORE_CHUNK = 5000
_STABLE_OFFSET_PATIENCE_S = 30.0
_CLOCKS_DIFFER_MS = 60_000

EXCLUSIVE_OUTPUTS = tuple(name for name, spec in TOPICS.items() if spec.exclusive)
"""Topics whose partition p only lane p writes to."""

_At = tuple[str, int]


class KafkaLaneCluster:
    """One lane's view, through clients of confluent-kafka."""

    def __init__(self, config: LaneKafkaConfig, partition: int, stopping: Callable[[], bool]) -> None:
        """`stopping()` tells whether waiting for an absent broker should end."""
        self._config = config
        self._partition = partition
        self._stopping = stopping
        self._admin: AdminClient | None = None
        self._names = config.names
        self._changelog = self._names[STATE_CHANGELOG.name]
        self._exclusive: list[_At] = [(topic, partition) for topic in EXCLUSIVE_OUTPUTS]
        self._shared: list[_At] = [(REPLIES.name, number) for number in range(config.partitions)]

    def producer(self, index: int) -> TransactionalProducer:
        """See `streams.ports.LaneCluster`."""
        return KafkaProducer(self._config, self._partition, index, self._stopping)

    def changelog_id(self) -> str:
        """See `streams.ports.LaneCluster`."""
        topics = TopicCollection([self._changelog])

        def ask(admin: AdminClient) -> str:
            described = admin.describe_topics(topics, request_timeout=CALL_S)
            return str(described[self._changelog].result().topic_id)

        found: str = self._ask_admin("describe the changelog", ask)
        return found

    def changelog_end(self) -> int:
        """See `streams.ports.LaneCluster`."""
        at = (STATE_CHANGELOG.name, self._partition)
        return self._offsets([at])[at]

    def command_range(self, topic: str) -> tuple[int, int]:
        """See `streams.ports.LaneCluster`."""
        at = (topic, self._partition)
        low = self._offsets([at], spec=OffsetSpec.earliest())[at]
        return low, self._offsets([at])[at]

    def read_changelog(self, start: int, end: int) -> Iterator[tuple[list[StateChange], int]]:
        """See `streams.ports.LaneCluster`. A start that is no longer in the log is moved to the log's start."""
        consumer = self._consumer(committed=True)
        position = behind = start
        moved_at = time.monotonic()
        try:
            consumer.assign([TopicPartition(self._changelog, self._partition, start)])
            while position < end:
                changes: list[StateChange] = []
                before = position
                for message in consumer.consume(_RESTORE_CHUNK, 0.05):
                    error = message.error()
                    if error is None:
                        changes.append((message.key(), message.value()))
                        position = behind = message.offset() + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # Where the next read starts: behind trailing markers, up to the stable offset.
                        position = max(position, message.offset())
                    elif not passes(error):
                        raise lost("read the changelog", KafkaException(error))
                if position != before:
                    moved_at = time.monotonic()
                    if changes:
                        yield changes, behind
                else:
                    self._check_patience(moved_at, f"the changelog stands still at {position} of {end}")
        finally:
            consumer.close()

    def is_committed(self, position: int) -> bool:
        """See `streams.ports.LaneCluster`."""
        place = Place(STATE_CHANGELOG.name, self._partition, position)
        return any(True for _ in self._messages(place, position + 1, committed=True))

    def hung(self) -> list[HungTransaction]:
        """See `streams.ports.LaneCluster`."""
        return [self._first_record(Place(*at, stable)) for at, stable, _ in self._unstable(self._exclusive)]

    def unread(self, is_own: Callable[[frozenset[str]], bool]) -> list[HungTransaction]:
        """See `streams.ports.LaneCluster`."""
        found = []
        for at, stable, end in self._unstable(self._shared):
            for message in self._messages(Place(*at, stable), end, committed=False):
                names = names_in(at[0], message.headers() or ())
                if is_own(names):
                    begins = Place(*at, message.offset())
                    found.append(HungTransaction(begins, names, message.timestamp()[1]))
        return found

    def is_visible(self, transaction: HungTransaction) -> bool:
        """See `streams.ports.LaneCluster`. Read from a little before the hanging record was written."""
        places = [at for at in self._exclusive + self._shared if at != transaction.place[:2]]
        since = OffsetSpec.for_timestamp(max(0, transaction.timestamp - _CLOCKS_DIFFER_MS))
        starts = self._offsets(places, spec=since, may_be_missing=True)
        ends = self._offsets(places, IsolationLevel.READ_COMMITTED)
        return any(
            starts[at] != OFFSET_INVALID and self._holds(transaction.names, Place(*at, starts[at]), ends[at])
            for at in places
        )

    def names_behind(self, place: Place) -> Iterator[frozenset[str]]:
        """See `streams.ports.LaneCluster`."""
        end = self._offsets([place[:2]])[place[:2]]
        for message in self._messages(place._replace(offset=place.offset + 1), end, committed=False):
            yield names_in(place.topic, message.headers() or ())

    def close(self) -> None:
        """See `streams.ports.LaneCluster`."""
        self._admin = None

    def _unstable(self, places: list[_At]) -> list[tuple[_At, int, int]]:
        """The partitions whose last stable offset stays behind the end, with both."""
        ends = self._offsets(places)
        stable = self._offsets(places, IsolationLevel.READ_COMMITTED)
        return [(at, stable[at], ends[at]) for at in places if stable[at] < ends[at]]

    def _first_record(self, place: Place) -> HungTransaction:
        """The record at an offset, which need not be committed."""
        for message in self._messages(place, place.offset + 1, committed=False):
            names = names_in(place.topic, message.headers() or ())
            return HungTransaction(place, names, message.timestamp()[1])
        raise LaneLostError(
            f"{place.topic} {place.partition} has nothing at its last stable offset {place.offset}"
        )

    def _holds(self, names: frozenset[str], start: Place, end: int) -> bool:
        messages = self._messages(start, end, committed=True)
        return any(names & names_in(start.topic, message.headers() or ()) for message in messages)

    def _messages(self, start: Place, end: int, *, committed: bool) -> Iterator[Any]:
        """The records of a partition from an offset on, up to `end`."""
        consumer = self._consumer(committed=committed)
        position, moved_at = start.offset, time.monotonic()
        try:
            consumer.assign([TopicPartition(self._names[start.topic], start.partition, start.offset)])
            while position < end:
                message = consumer.poll(0.05)
                if message is None:
                    self._check_patience(moved_at, f"{start.topic} stands still at {position} of {end}")
                    continue
                error = message.error()
                if error is None:
                    if message.offset() >= end:
                        return
                    yield message
                    position = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset())
                elif not passes(error):
                    raise lost(f"read {start.topic}", KafkaException(error))
                moved_at = time.monotonic()
        finally:
            consumer.close()

    def _check_patience(self, moved_at: float, what: str) -> None:
        if self._stopping():
            raise LaneLostError("stopped while reading the log")
        if time.monotonic() - moved_at > _STABLE_OFFSET_PATIENCE_S:
            raise LaneLostError(f"{what}: an open transaction or no broker")

    def _consumer(self, *, committed: bool) -> Consumer:
        return Consumer(
            {
                **self._config.connection,
                "group.id": "unused",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                # Several lanes restore at once: what is fetched ahead is bounded for each.
                "fetch.message.max.bytes": 2 * 1024 * 1024,
                "queued.min.messages": 20_000,
                "queued.max.messages.kbytes": 8 * 1024,
                # At these limits the client stops fetching, by default for a second: longer than they last.
                "fetch.queue.backoff.ms": 2,
                "reconnect.backoff.max.ms": 500,
                "logger": _log,
            }
        )

    def _ask_admin(self, what: str, ask: Callable[[AdminClient], Any]) -> Any:
        """Ask the cluster, with an admin client of this opening; after an error with a fresh one."""

        def attempt() -> Any:
            admin = self._admin
            if admin is None:
                admin = AdminClient({**self._config.connection, "logger": _log})
                # Connected first: the first list_offsets of a cold client stalls for 3 s now and then.
                admin.list_topics(timeout=CALL_S)
            # A kept client answers list_offsets with FENCED_LEADER_EPOCH for ever after a broker restart.
            self._admin = None
            answer = ask(admin)
            self._admin = admin
            return answer

        return patiently(what, attempt, self._stopping)

    def _offsets(
        self,
        places: Iterable[_At],
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        spec: OffsetSpec | None = None,
        *,
        may_be_missing: bool = False,
    ) -> dict[_At, int]:
        wanted = {
            TopicPartition(self._names[topic], number): spec or OffsetSpec.latest()
            for topic, number in places
        }
        short = {full: topic for topic, full in self._names.items()}

        def ask(admin: AdminClient) -> dict[_At, int]:
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=CALL_S)
            return {(short[at.topic], at.partition): future.result().offset for at, future in futures.items()}

        found: dict[_At, int] = self._ask_admin("list offsets", ask)
        if OFFSET_INVALID in found.values() and not may_be_missing:
            raise LaneLostError("the broker does not know an offset yet")
        return found
