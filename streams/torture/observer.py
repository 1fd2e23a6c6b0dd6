"""Reads what comes of the load, as any observer could, and tells what is still awaited."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from schemas.replies import CORRELATION_ID
from schemas.topics import DEAD_LETTERS, REPLIES, RUN_EVENTS, TOPICS
from streams.messaging.kafka_config import reader_config
from streams.settings import Settings
from streams.torture.executed_runs import NAME
from streams.torture.load import LoadGenerator, Proof
from streams.torture.pauses import Pauses
from streams.torture.sender import SentRecord
from streams.user_errors import UserError

_POLL_S = 0.05
_AT_ONCE = 1000
_OUTPUTS = tuple(name for name, spec in TOPICS.items() if spec.family in ("outputs", "replies"))


@dataclass(slots=True)
class _RunInHand:
    """An executed run that has not ended."""

    partition: int
    dispatched_at: float
    latest_at: float


class Observer:
    """Reads the output topics in a thread of its own, from their beginning.

    `expect` makes it await a record's proof; what is awaited is in `awaited`, and each wait goes to `pauses`.
    """

    def __init__(self, settings: Settings, generators: Sequence[LoadGenerator], pauses: Pauses) -> None:
        self.pauses = pauses
        self.events = 0
        self.replies = 0
        self.dead_letters = 0
        self.newest_at = time.monotonic()
        """When a record came last."""
        self._generators = list(generators)
        self._names = {settings.name(name): name for name in _OUTPUTS}
        # Replies and dead letters are known by the correlation id, events by the command id.
        self._events: dict[str, SentRecord] = {}
        self._answers: dict[bytes, SentRecord] = {}
        self._letters: dict[bytes, SentRecord] = {}
        self._in_hand: dict[str, _RunInHand] = {}
        self._problem: BaseException | None = None
        self._stopping = threading.Event()
        self._consumer = Consumer({**reader_config(settings), "fetch.wait.max.ms": 20})
        self._consumer.assign(
            [
                TopicPartition(name, partition, OFFSET_BEGINNING)
                for name in self._names
                for partition in range(settings.partitions)
            ]
        )
        self._thread = threading.Thread(target=self._run, name="torture-observer", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def raise_problem(self) -> None:
        """Raises `UserError` when reading has failed."""
        if self._problem is not None:
            raise UserError(f"The topics cannot be read: {self._problem}") from self._problem

    def expect(self, record: SentRecord) -> None:
        """Await the proof of a record, and its reply if it asks for one; any thread."""
        if record.proof is Proof.EVENT and record.command_id is not None:
            self._events[record.command_id] = record
        if record.correlation_id is not None:
            self._answers[record.correlation_id] = record
            if record.proof is Proof.DEAD_LETTER:
                self._letters[record.correlation_id] = record

    @property
    def awaited(self) -> int:
        """How many events, replies and dead letters are due."""
        return len(self._events) + len(self._answers) + len(self._letters)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                for message in self._consumer.consume(_AT_ONCE, _POLL_S):
                    error = message.error()
                    if error is None:
                        self._take(self._names[message.topic()], message, time.monotonic())
                    elif error.code() != KafkaError._PARTITION_EOF and error.fatal():
                        raise UserError(error.str())
        except BaseException as problem:
            self._problem = problem
        finally:
            self._consumer.close()

    def _take(self, topic: str, message: Any, at: float) -> None:
        self.newest_at = at
        if topic == DEAD_LETTERS.name:
            self.dead_letters += 1
            headers = dict(message.headers() or ())
            self._settle(self._letters.pop(headers.get(CORRELATION_ID, b""), None), at)
            return
        if message.value() is None:
            return
        body = orjson.loads(message.value())
        if topic == REPLIES.name:
            self.replies += 1
            self._settle(self._answers.pop(message.key(), None), at)
        elif topic == RUN_EVENTS.name:
            self.events += 1
            self._settle(self._events.pop(body["commandId"], None), at)
            self._follow(body, message.partition(), at)
        else:
            self._note_dispatch(body, message.partition(), at)
        for generator in self._generators:
            generator.saw(topic, body)

    def _settle(self, record: SentRecord | None, at: float) -> None:
        if record is not None and not record.waits:
            self.pauses.command_done(record.partition, record.sent_at, at)

    def _note_dispatch(self, body: dict[str, Any], partition: int, at: float) -> None:
        if body.get("name") == NAME:
            self._in_hand[body["runId"]] = _RunInHand(partition, at, at)

    def _follow(self, event: dict[str, Any], partition: int, at: float) -> None:
        run = self._in_hand.get(event["runId"])
        if run is None:
            return
        self.pauses.run_went_on(partition, run.latest_at, at, dispatched_at=run.dispatched_at)
        run.latest_at = at
        if event["type"] == "terminal":
            del self._in_hand[event["runId"]]
