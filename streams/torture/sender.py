"""Sends the load at a rate, in a thread of its own, and keeps account of every record."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from schemas.replies import CORRELATION_ID, REPLY_PARTITION
from schemas.topics import RUN_COMMANDS
from streams.messaging.kafka_config import connection_config
from streams.partitioner import partition_for
from streams.settings import Settings
from streams.torture.load import LoadCommand, LoadGenerator, Proof
from streams.user_errors import UserError

_MISROUTED_SHARE = 0.01
_REPLY_SHARE = 0.1
_POLL_S = 0.005
_QUEUE_RECORDS = 1_000_000
_FLUSH_PATIENCE_S = 120.0
_ABORT_EVERY_S = 1.0
_ABORT_CALL_S = 5.0
_ABORTED_RECORDS = 3
_ABORT_TIMEOUT_MS = 10_000

Headers = tuple[tuple[str, bytes], ...]


@dataclass(slots=True)
class SentRecord:
    """A record of the load."""

    kind: str
    topic: str
    """Without prefix."""
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    command_id: str | None
    correlation_id: bytes | None
    """None: no reply is asked for."""
    proof: Proof
    sent_at: float
    """When it was handed to the producer, by the monotonic clock."""
    waits: bool = False
    """See `LoadCommand`."""
    acknowledged: bool = False
    offset: int | None = None
    """None also when the broker had it already when it was sent again: then the broker does not tell."""


class Sender:
    """The load. `sent` has every record from the moment at which it is handed to the producer."""

    def __init__(
        self,
        settings: Settings,
        generators: Sequence[LoadGenerator],
        *,
        rate: float,
        source: random.Random,
        expect: Callable[[SentRecord], None],
    ) -> None:
        """`expect(record)` is called before a record leaves, in the sender's thread."""
        self.sent: list[SentRecord] = []
        self.acknowledged = 0
        self._settings = settings
        self._generators = list(generators)
        self._rate = rate
        self._source = source
        self._expect = expect
        self._refused: list[KafkaError] = []
        self._problem: BaseException | None = None
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                **connection_config(settings),
                # In the order in which they were sent, and once, however long the broker is away.
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "linger.ms": 5,
                "queue.buffering.max.messages": _QUEUE_RECORDS,
            }
        )
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"torture-{name}", daemon=True)
            for name, work in (("sender", self._send), ("aborter", self._abort_again_and_again))
        ]

    def start(self) -> None:
        """Begin to send."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more, and wait until the broker has everything. Raises `UserError` when it does not take it."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_FLUSH_PATIENCE_S)
        self.raise_problem()
        left = self._producer.flush(_FLUSH_PATIENCE_S)
        if left:
            raise UserError(f"The broker did not take {left:,} commands within {_FLUSH_PATIENCE_S:.0f} s.")
        self.raise_problem()

    def abandon(self) -> None:
        """Send no more, and wait for nothing."""
        self._stopping.set()

    def raise_problem(self) -> None:
        """Raises `UserError` when the load itself has failed."""
        if self._problem is not None:
            raise UserError(f"The load broke off: {self._problem}") from self._problem
        if self._refused:
            raise UserError(f"The broker refused commands of the load: {self._refused[0].str()}.")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as problem:
            self._problem = problem

    def _send(self) -> None:
        started, count = time.monotonic(), 0
        shares = [generator.share for generator in self._generators]
        while not self._stopping.is_set():
            due = int((time.monotonic() - started) * self._rate)
            while count < due:
                (generator,) = self._source.choices(self._generators, shares)
                self._send_one(generator.topic.name, generator.next())
                count += 1
            self._producer.poll(_POLL_S)

    def _send_one(self, topic: str, command: LoadCommand) -> None:
        partitions, source = self._settings.partitions, self._source
        partition, proof = partition_for(command.key or b"", partitions), command.proof
        if command.may_be_misrouted and partitions > 1 and source.random() < _MISROUTED_SHARE:
            partition = (partition + 1 + source.randrange(partitions - 1)) % partitions
            # It may be overtaken by what comes after it, and be refused then.
            proof = Proof.REPLY
        correlation_id: bytes | None = None
        headers: Headers = ()
        if proof is not Proof.EVENT or source.random() < _REPLY_SHARE:
            correlation_id = b"r-%020x" % source.getrandbits(80)
            answer_to = b"%d" % source.randrange(partitions)
            headers = ((REPLY_PARTITION, answer_to), (CORRELATION_ID, correlation_id))
        record = SentRecord(
            command.kind,
            topic,
            partition,
            command.key,
            # What orjson makes keeps 4 KiB for as long as it is kept.
            None if command.value is None else bytes(memoryview(command.value)),
            headers,
            command.command_id,
            correlation_id,
            proof,
            time.monotonic(),
            command.waits,
        )
        self.sent.append(record)
        self._expect(record)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._refused.append(error)
                return
            record.acknowledged = True
            self.acknowledged += 1
            offset = message.offset()
            record.offset = offset if offset is not None and offset >= 0 else None

        self._producer.produce(
            self._settings.name(topic),
            record.value,
            record.key,
            partition=partition,
            headers=list(headers),
            on_delivery=delivered,
        )

    def _abort_again_and_again(self) -> None:
        """Commands of a client whose transactions are always aborted: nothing may come of them."""
        topic, number = self._settings.name(RUN_COMMANDS.name), 0
        while not self._stopping.is_set():
            # After an error a new producer, whose initialisation ends what the old one has left open.
            try:
                producer = self._aborting_producer()
                while not self._stopping.wait(_ABORT_EVERY_S):
                    producer.begin_transaction()
                    for _ in range(_ABORTED_RECORDS):
                        number += 1
                        key = b"aborted-%d" % number
                        value = b'{"type":"run.cancel","commandId":"%b","runId":"%b"}' % (key, key)
                        partition = partition_for(key, self._settings.partitions)
                        producer.produce(topic, value, key, partition=partition)
                    producer.flush(_ABORT_CALL_S)
                    producer.abort_transaction(_ABORT_CALL_S)
            except KafkaException:
                self._stopping.wait(_ABORT_EVERY_S)
        # Its last transaction may be open when the broker was away, and would hold up the readers for a while.
        with suppress(KafkaException):
            self._aborting_producer()

    def _aborting_producer(self) -> Producer:
        producer = Producer(
            {
                **connection_config(self._settings),
                "transactional.id": self._settings.name("torture-aborter"),
                "transaction.timeout.ms": _ABORT_TIMEOUT_MS,
            }
        )
        producer.init_transactions(_ABORT_CALL_S)
        return producer
