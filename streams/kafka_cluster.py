"""How a lane sees a cluster of Apache Kafka. See `streams.ports.LaneCluster`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from streams.messaging.cluster_questions import ClusterQuestions
from streams.ports import LaneLostError, LoggedRecord, Place, StateChange, TransactionalProducer
from streams.transaction_names import names_of

_log = logging.getLogger(__name__)

_RESTORE_CHUNK = 5000
_STABLE_OFFSET_PATIENCE_S = 30.0
_CLOCKS_DIFFER_MS = 60_000
_MARKERS_AT_AN_END = 32
"""So many markers may stand behind the last record of a partition, usually one or two."""

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
        self._questions = ClusterQuestions({**config.connection, "logger": _log}, CALL_S)
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
        return any(True for _ in self._read(place, position + 1, committed=True))

    def hung(self) -> list[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        return [self._first_record(Place(*at, stable)) for at, stable, _ in self._unstable(self._exclusive)]

    def unread(self, is_own: Callable[[frozenset[str]], bool]) -> list[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        return [
            record
            for at, stable, end in self._unstable(self._shared)
            for record in self._read(Place(*at, stable), end, committed=False)
            if record.place.offset == stable or is_own(names_of(record))
        ]

    def is_visible(self, record: LoggedRecord) -> bool:
        """See `streams.ports.LaneCluster`. Read from a little before the record was written."""
        places = [at for at in self._exclusive + self._shared if at != record.place[:2]]
        since = OffsetSpec.for_timestamp(max(0, record.timestamp - _CLOCKS_DIFFER_MS))
        starts = self._offsets(places, spec=since, may_be_missing=True)
        ends = self._offsets(places, IsolationLevel.READ_COMMITTED)
        written = [Place(*at, start) for at, start in starts.items() if start != OFFSET_INVALID]
        names = names_of(record)
        return any(names & names_of(other) for other in self._read_all(written, ends, committed=True))

    def tails(self) -> list[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        ends = self._offsets(self._exclusive)
        starts = [Place(*at, max(0, end - _MARKERS_AT_AN_END)) for at, end in ends.items()]
        found = {record.place[:2]: record for record in self._read_all(starts, ends, committed=False)}
        return list(found.values())

    def records(self, place: Place, *, committed: bool) -> Iterator[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        at = place[:2]
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        return self._read(place, self._offsets([at], isolation)[at], committed=committed)

    def close(self) -> None:
        """See `streams.ports.LaneCluster`."""
        self._questions.close()

    def _unstable(self, places: list[_At]) -> list[tuple[_At, int, int]]:
        """The partitions whose last stable offset stays behind the end, with both."""
        ends = self._offsets(places)
        stable = self._offsets(places, IsolationLevel.READ_COMMITTED)
        return [(at, stable[at], ends[at]) for at in places if stable[at] < ends[at]]

    def _first_record(self, place: Place) -> LoggedRecord:
        """The record at an offset, which need not be committed."""
        for record in self._read(place, place.offset + 1, committed=False):
            return record
        raise LaneLostError(
            f"{place.topic} {place.partition} has nothing at its last stable offset {place.offset}"
        )

    def _read(self, start: Place, end: int, *, committed: bool) -> Iterator[LoggedRecord]:
        """The records of a partition from an offset on, up to `end`."""
        return self._read_all([start], {start[:2]: end}, committed=committed)

    def _read_all(
        self, starts: Sequence[Place], ends: Mapping[_At, int], *, committed: bool
    ) -> Iterator[LoggedRecord]:
        """The same of several partitions at once."""
        consumer = self._consumer(committed=committed)
        moved_at = time.monotonic()
        left = {start[:2]: start.offset for start in starts if start.offset < ends[start[:2]]}
        short = {self._names[start.topic]: start.topic for start in starts}
        try:
            consumer.assign([TopicPartition(self._names[topic], *rest) for topic, *rest in starts])
            while left:
                message = consumer.poll(0.05)
                if message is None:
                    self._check_patience(moved_at, f"reading stands still at {left} of {ends}")
                    continue
                moved_at = time.monotonic()
                error, offset = message.error(), message.offset()
                is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
                if error is not None and not is_end:
                    if not passes(error):
                        raise lost("read the log", KafkaException(error))
                    continue
                at = (short[message.topic()], message.partition())
                if at not in left:
                    continue
                if not is_end and offset < ends[at]:
                    yield _logged(at, message)
                    offset += 1
                left[at] = max(left[at], offset)
                if left[at] >= ends[at]:
                    del left[at]
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
        return patiently(what, lambda: self._questions.ask(ask), self._stopping)

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


def _logged(at: _At, message: Any) -> LoggedRecord:
    place = Place(*at, message.offset())
    return LoggedRecord(
        place, message.timestamp()[1], message.key(), message.value(), message.headers() or ()
    )
