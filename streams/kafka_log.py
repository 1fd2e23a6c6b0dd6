"""The log side of a lane on Apache Kafka: a ring of transactional producers, and its changelog partition.

Why a ring of two: right after a commit, the same transactional id has to wait until the broker has written its
markers; a second id need not. Order holds, since `read_committed` readers stop at the first open transaction.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from schemas.topics import STATE_CHANGELOG, TOPICS
from streams.ports import FencedError, LaneLostError, OutRecord, RecordsRefusedError, StateChange

RING_SIZE = 2
"""Transactional ids of a lane; part of the layout, not a setting."""

_log = logging.getLogger(__name__)

_CLIENT_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_CALL_S = 10.0
_COMMIT_CALL_S = 5.0
_RESTORE_CHUNK = 5000
_CLIENT_QUEUE_RECORDS = 500_000
_LINGER_MS = 100
_STABLE_OFFSET_PATIENCE_S = 30.0

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    # Leaders move, and a topic that was just made has none yet.
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}

EXCLUSIVE_OUTPUTS = tuple(name for name, spec in TOPICS.items() if spec.exclusive)
"""Topics whose partition p only lane p writes to."""


@dataclass(frozen=True)
class KafkaLogConfig:
    """What all lanes of a worker need to know of the cluster."""

    brokers: str
    client_id: str
    full_name: Callable[[str], str]
    """Topic or transactional id without prefix -> with prefix."""
    transaction_timeout_ms: int


class KafkaLaneLog:
    """One lane's producers, made anew at each opening. See `streams.ports.LaneLog`."""

    def __init__(self, config: KafkaLogConfig, partition: int, stopping: Callable[[], bool]) -> None:
        """`stopping()` tells whether waiting for an absent broker should end."""
        self._config = config
        self._partition = partition
        self._stopping = stopping
        self._ring: list[Producer] = []
        self._admin: AdminClient | None = None
        self._turn = 0
        self._position: int | None = None
        self._names = {name: config.full_name(name) for name in TOPICS}
        self._changelog = self._names[STATE_CHANGELOG.name]

    def fence(self) -> None:
        """Take over all transactional ids of the ring: ends the old owner and its open transactions."""
        self.close()
        ring = [self._producer(index) for index in range(RING_SIZE)]
        self._ring = ring
        # Connected first: otherwise the client's first query for the coordinator finds no broker and waits 500 ms.
        for producer in ring:
            self._patiently("connect", partial(producer.list_topics, timeout=_CALL_S))
        for producer in ring:
            self._patiently("fence", partial(producer.init_transactions, _CALL_S))

    def hung_partitions(self) -> dict[str, int]:
        """See `streams.ports.LaneLog`."""
        ends = self._offsets(EXCLUSIVE_OUTPUTS, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(EXCLUSIVE_OUTPUTS, IsolationLevel.READ_COMMITTED)
        return {topic: stable[topic] for topic, end in ends.items() if stable[topic] < end}

    def abort_hung(self, topics: Iterable[str]) -> None:
        """See `streams.ports.LaneLog`. An aborted transaction of the same id on the same partition ends the old one."""
        for producer in self._ring:
            try:
                producer.begin_transaction()
                for topic in topics:
                    producer.produce(self._names[topic], b"", b"\0heal", partition=self._partition)
                producer.flush(_CALL_S)
                producer.abort_transaction(2 * _CALL_S)
            except KafkaException as error:
                raise _lost("abort what hangs", error) from error

    def changelog_id(self) -> str:
        """Id of the changelog topic."""
        topics = TopicCollection([self._changelog])

        def ask(admin: AdminClient) -> str:
            return str(
                admin.describe_topics(topics, request_timeout=_CALL_S)[self._changelog].result().topic_id
            )

        found: str = self._ask_admin("describe the changelog", ask)
        return found

    def changelog_end(self) -> int:
        """End offset of the lane's changelog partition, open transactions included."""
        name = STATE_CHANGELOG.name
        return self._offsets([name], IsolationLevel.READ_UNCOMMITTED)[name]

    def command_range(self, topic: str) -> tuple[int, int]:
        """First and end offset of the lane's partition of a command topic."""
        low = self._offsets([topic], IsolationLevel.READ_UNCOMMITTED, OffsetSpec.earliest())[topic]
        return low, self._offsets([topic], IsolationLevel.READ_UNCOMMITTED)[topic]

    def read_changelog(self, start: int, end: int) -> Iterator[tuple[list[StateChange], int]]:
        """See `streams.ports.LaneLog`. A start that compaction or retention has passed is moved to the log's start."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._config.brokers,
                "client.id": self._config.client_id,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                # Several lanes restore at once: what is fetched ahead is bounded for each.
                "fetch.message.max.bytes": 2 * 1024 * 1024,
                "queued.min.messages": 20_000,
                "queued.max.messages.kbytes": 8 * 1024,
                "reconnect.backoff.max.ms": 500,
                "logger": _log,
            }
        )
        position = start
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
                        position = message.offset() + 1
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # Where the next read starts: behind trailing markers, up to the stable offset.
                        position = max(position, message.offset())
                    elif error.code() not in _PASSING and not error.retriable():
                        raise _lost("read the changelog", KafkaException(error))
                if position != before:
                    moved_at = time.monotonic()
                    yield changes, position
                elif self._stopping():
                    raise LaneLostError("stopped while restoring")
                elif time.monotonic() - moved_at > _STABLE_OFFSET_PATIENCE_S:
                    raise LaneLostError(
                        f"the changelog stands still at {position} of {end}: an open transaction or no broker"
                    )
        finally:
            consumer.close()

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord]) -> None:
        """See `streams.ports.LaneLog`."""
        producer = self._ring[self._turn]
        partition, names, changelog = self._partition, self._names, self._changelog
        self._position = None
        *others, (last_key, last_value) = changes
        try:
            producer.begin_transaction()
            produce = producer.produce
            for key, value in others:
                try:
                    produce(changelog, value, key, partition)
                except BufferError:
                    self._enqueue(producer, OutRecord(changelog, partition, key, value))
            last = OutRecord(changelog, partition, last_key, last_value)
            self._enqueue(producer, last, self._delivered)
            for output in outputs:
                topic, to, headers = names[output.topic], output.partition, output.headers
                try:
                    if headers is None:
                        produce(topic, output.value, output.key, to)
                    else:
                        produce(topic, output.value, output.key, to, headers=list(headers))
                except BufferError:
                    self._enqueue(producer, output._replace(topic=topic))
        except KafkaException as error:
            raise self._failed(producer, error) from error

    def commit(self) -> int:
        """See `streams.ports.LaneLog`."""
        producer = self._ring[self._turn]
        self._turn = (self._turn + 1) % RING_SIZE
        try:
            self._commit(producer)
        except KafkaException as error:
            raise self._failed(producer, error) from error
        if self._position is None:
            raise LaneLostError("the commit succeeded without the changelog offset of its last record")
        return self._position

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._position = message.offset() + 1

    def close(self) -> None:
        """Release the producers; what is in flight is dropped."""
        for producer in self._ring:
            producer.purge()
        self._ring = []
        self._admin = None

    def _enqueue(
        self,
        producer: Producer,
        record: OutRecord,
        delivered: Callable[[KafkaError | None, Any], None] | None = None,
    ) -> None:
        """Produce one record, its topic in full; waits while the client's queue is full."""
        topic, partition, key, value, headers = record
        while True:
            try:
                producer.produce(
                    topic, value, key, partition, on_delivery=delivered, headers=list(headers or ())
                )
                return
            except BufferError:
                if self._stopping():
                    raise LaneLostError("stopped while the client's queue was full") from None
                producer.poll(0.05)

    def _commit(self, producer: Producer) -> None:
        """Commit; called again as long as the client says that this is safe, so that no outcome is guessed."""
        while True:
            try:
                producer.commit_transaction(_COMMIT_CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._stopping():
                    raise

    def _failed(self, producer: Producer, error: KafkaException) -> LaneLostError:
        cause = error.args[0]
        if cause.txn_requires_abort() or cause.code() in _REFUSED:
            try:
                producer.abort_transaction(_CALL_S)
            except KafkaException as abort_error:
                return _lost("abort", abort_error)
            if cause.code() in _REFUSED:
                return RecordsRefusedError(f"the broker refused a record: {cause.str()}")
        return _lost("commit", error)

    def _producer(self, index: int) -> Producer:
        config = self._config
        return Producer(
            {
                "bootstrap.servers": config.brokers,
                "client.id": f"{config.client_id}-lane-{self._partition}-{index}",
                "transactional.id": config.full_name(f"lane-{self._partition}-{index}"),
                "transaction.timeout.ms": config.transaction_timeout_ms,
                # The commit flushes at once; until then records gather into large batches.
                "linger.ms": _LINGER_MS,
                "compression.type": "lz4",
                "message.max.bytes": _CLIENT_MAX_MESSAGE_BYTES,
                "queue.buffering.max.messages": _CLIENT_QUEUE_RECORDS,
                "reconnect.backoff.max.ms": 500,
                "logger": _log,
            }
        )

    def _ask_admin(self, what: str, ask: Callable[[AdminClient], Any]) -> Any:
        """Ask the cluster, with an admin client of this opening; after an error with a fresh one."""

        def attempt() -> Any:
            admin = self._admin
            if admin is None:
                admin = AdminClient({"bootstrap.servers": self._config.brokers, "logger": _log})
                # Connected first: the first list_offsets of a cold client stalls for 3 s now and then.
                admin.list_topics(timeout=_CALL_S)
            # A kept client answers list_offsets with FENCED_LEADER_EPOCH for ever after a broker restart.
            self._admin = None
            answer = ask(admin)
            self._admin = admin
            return answer

        return self._patiently(what, attempt)

    def _offsets(
        self, topics: Iterable[str], isolation: IsolationLevel, spec: OffsetSpec | None = None
    ) -> dict[str, int]:
        wanted = {
            TopicPartition(self._names[topic], self._partition): spec or OffsetSpec.latest()
            for topic in topics
        }
        full = {self._names[topic]: topic for topic in topics}

        def ask(admin: AdminClient) -> dict[str, int]:
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_CALL_S)
            return {full[at.topic]: future.result().offset for at, future in futures.items()}

        found: dict[str, int] = self._ask_admin("list offsets", ask)
        if OFFSET_INVALID in found.values():
            raise LaneLostError("the broker does not know an offset yet")
        return found

    def _patiently(self, what: str, call: Callable[[], Any]) -> Any:
        """Call until it succeeds or fails for good; a broker that is away is waited for."""
        pause = 0.05
        while True:
            try:
                return call()
            except KafkaException as error:
                cause = error.args[0]
                passing = cause.retriable() or cause.code() in _PASSING
                if not passing or cause.fatal() or self._stopping():
                    raise _lost(what, error) from error
                time.sleep(pause)
                pause = min(pause * 2, 1.0)


def _lost(what: str, error: KafkaException) -> LaneLostError:
    cause = error.args[0]
    kind = FencedError if cause.code() in _FENCED else LaneLostError
    return kind(f"{what}: {cause.name()}: {cause.str()}")
