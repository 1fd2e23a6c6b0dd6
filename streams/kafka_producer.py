"""One transactional id of a lane on Apache Kafka. See `streams.ports.TransactionalProducer`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from msgspec.structs import replace

from schemas.topics import STATE_CHANGELOG
from streams.kafka_calls import CALL_S, LaneKafkaConfig, lost, patiently
from streams.ports import LaneLostError, OutRecord, RecordsRefusedError, StateChange
from streams.transaction_names import TRANSACTION

_log = logging.getLogger(__name__)

_CLIENT_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_CLIENT_QUEUE_RECORDS = 500_000
_COMMIT_CALL_S = 5.0
_LINGER_MS = 100

_BROKEN_CONNECTION = {"FAIL", "REQTMOUT"}
_COORDINATOR = "TxnCoordinator"

_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.POLICY_VIOLATION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class KafkaProducer:
    """A transactional producer of confluent-kafka."""

    def __init__(
        self, config: LaneKafkaConfig, partition: int, index: int, stopping: Callable[[], bool]
    ) -> None:
        """`stopping()` tells whether waiting for an absent broker should end."""
        self._partition = partition
        self._stopping = stopping
        self._names = config.names
        self._changelog = config.names[STATE_CHANGELOG.name]
        self._position: int | None = None
        self._is_shaken = False
        """A connection to a broker broke since `fence`."""
        self._is_open = False
        """A transaction has begun, and its end is not known."""
        self._producer = Producer(
            {
                **config.connection,
                "client.id": f"{config.connection['client.id']}-lane-{partition}-{index}",
                "transactional.id": config.full_name(f"lane-{partition}-{index}"),
                "transaction.timeout.ms": config.transaction_timeout_ms,
                # The commit flushes at once; until then records gather into large batches.
                "linger.ms": _LINGER_MS,
                "compression.type": "lz4",
                "message.max.bytes": _CLIENT_MAX_MESSAGE_BYTES,
                "queue.buffering.max.messages": _CLIENT_QUEUE_RECORDS,
                "reconnect.backoff.max.ms": 500,
                "error_cb": self._shaken,
                "logger": _ClientLog(self._lost_coordinator),
            }
        )

    def connect(self) -> None:
        """Otherwise the client's first query for the coordinator finds no broker and waits 500 ms."""
        self._patiently("connect", partial(self._producer.list_topics, timeout=CALL_S))

    def fence(self) -> None:
        """See `streams.ports.TransactionalProducer`."""
        self._patiently("fence", partial(self._producer.init_transactions, CALL_S))
        self._producer.poll(0)
        self._is_shaken = False

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord], name: bytes) -> None:
        """See `streams.ports.TransactionalProducer`."""
        producer, partition, names, changelog = self._producer, self._partition, self._names, self._changelog
        self._check_markers()
        self._position, self._is_open = None, True
        (first_key, first_value), *others = changes
        # The transaction's records reach a partition in order: the last one's offset is behind all others.
        last = others.pop() if others else None
        first = OutRecord(changelog, partition, first_key, first_value, [(TRANSACTION, name)])
        try:
            producer.begin_transaction()
            self._enqueue(first, None if last else self._delivered)
            produce = producer.produce
            for key, value in others:
                try:
                    produce(changelog, value, key, partition)
                except BufferError:
                    self._enqueue(OutRecord(changelog, partition, key, value))
            if last:
                self._enqueue(OutRecord(changelog, partition, *last), self._delivered)
            for output in outputs:
                topic, to, headers = names[output.topic], output.partition, output.headers
                try:
                    if headers is None:
                        produce(topic, output.value, output.key, to)
                    else:
                        produce(topic, output.value, output.key, to, headers=list(headers))
                except BufferError:
                    self._enqueue(replace(output, topic=topic))
        except KafkaException as error:
            raise self._failed(error) from error

    def commit(self) -> int:
        """See `streams.ports.TransactionalProducer`."""
        try:
            self._commit()
        except KafkaException as error:
            raise self._failed(error) from error
        # What the client has logged until now is of this transaction.
        self._producer.poll(0)
        self._is_open = False
        if self._position is None:
            raise LaneLostError("the commit succeeded without the changelog offset of its last record")
        return self._position

    def write(self, records: Iterable[OutRecord], *, commit: bool) -> None:
        """See `streams.ports.TransactionalProducer`."""
        self._check_markers()
        self._is_open = True
        try:
            self._producer.begin_transaction()
            for record in records:
                self._enqueue(replace(record, topic=self._names[record.topic]))
            if commit:
                self._commit()
            else:
                self._producer.flush(CALL_S)
                self._producer.abort_transaction(2 * CALL_S)
        except KafkaException as error:
            raise lost("end what hangs", error) from error
        self._producer.poll(0)
        self._is_open = False

    def close(self) -> None:
        """See `streams.ports.TransactionalProducer`."""
        self._producer.purge()

    def _check_markers(self) -> None:
        self._producer.poll(0)
        if self._is_shaken:
            raise LaneLostError(
                "a connection to a broker broke: transaction markers may be lost, or a commit be delivered again"
            )

    def _shaken(self, error: KafkaError) -> None:
        self._is_shaken = True

    def _lost_coordinator(self) -> None:
        # Between transactions nothing is under way: the broker closes connections that are idle.
        if self._is_open:
            self._is_shaken = True

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._position = message.offset() + 1

    def _enqueue(
        self, record: OutRecord, delivered: Callable[[KafkaError | None, Any], None] | None = None
    ) -> None:
        """Produce one record, its topic in full; waits while the client's queue is full."""
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=delivered,
                    headers=list(record.headers or ()),
                )
                return
            except BufferError:
                if self._stopping():
                    raise LaneLostError("stopped while the client's queue was full") from None
                self._producer.poll(0.05)

    def _commit(self) -> None:
        """Commit; called again as long as the client says that this is safe, so that no outcome is guessed."""
        while True:
            try:
                self._producer.commit_transaction(_COMMIT_CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or self._stopping():
                    raise

    def _failed(self, error: KafkaException) -> LaneLostError:
        cause = error.args[0]
        if cause.txn_requires_abort() or cause.code() in _REFUSED:
            try:
                self._producer.abort_transaction(CALL_S)
            except KafkaException as abort_error:
                return lost("abort", abort_error)
            if cause.code() in _REFUSED:
                return RecordsRefusedError(f"the broker refused a record: {cause.str()}")
        return lost("commit", error)

    def _patiently(self, what: str, call: Callable[[], Any]) -> Any:
        return patiently(what, call, self._stopping)


class _ClientLog:
    """What the client logs, which is the only way to learn that the connection to the coordinator broke.

    The client then sends the end of the transaction again, over another connection. If the first one is still on
    its way, the broker will take it for the end of the next transaction: only version 2 of the transaction
    protocol prevents that, and the client speaks version 1.
    """

    def __init__(self, on_coordinator_lost: Callable[[], None]) -> None:
        self._on_coordinator_lost = on_coordinator_lost

    def log(self, level: int, text: str, *values: Any) -> None:
        """As of a `logging.Logger`; the values are the kind of message, the client and the message."""
        if values and values[0] in _BROKEN_CONNECTION and _COORDINATOR in str(values[-1]):
            self._on_coordinator_lost()
        _log.log(level, text, *values)
