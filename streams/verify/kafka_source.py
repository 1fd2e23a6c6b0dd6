"""The topics of a deployment on Apache Kafka. See `streams.verify.log_source.LogSource`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from schemas.topics import COMMAND_TOPICS, OUTPUT_TOPICS, STATE_CHANGELOG
from streams.messaging.kafka_config import reader_config
from streams.messaging.topic_positions import Positions, TopicPositions
from streams.settings import Settings
from streams.user_errors import UserError
from streams.verify.findings import Place
from streams.verify.log_source import Range, Record

_CHUNK = 5_000
_POLL_S = 0.1
_NEAR_THE_END = 10_000
_OPEN_POLL_S = 0.05
_BROKER_ENDS_TRANSACTIONS_WITHIN_S = 15.0

_OUTPUTS = tuple(spec.name for spec in OUTPUT_TOPICS if spec.name != STATE_CHANGELOG.name)
_COMMANDS = tuple(spec.name for spec in COMMAND_TOPICS)

_At = tuple[str, int]


class KafkaSource:
    """Reads one partition after another, each by a client of its own that is used again."""

    def __init__(
        self,
        settings: Settings,
        partitions: int,
        say: Callable[[str], None] = lambda what: None,
    ) -> None:
        """`say` is told what is waited for."""
        self.partitions = partitions
        self._settings = settings
        self._positions = TopicPositions(settings)
        self._say = say
        self._ranges: dict[_At, Range] = {}
        self._ends: dict[_At, int] = {}
        self._idle: list[Any] = []

    def close(self) -> None:
        """Close the clients."""
        while self._idle:
            self._idle.pop().close()

    def name(self, topic: str) -> str:
        """See `LogSource`."""
        return self._settings.name(topic)

    def extent(self, topic: str, partition: int) -> int:
        """See `LogSource`."""
        at = (topic, partition)
        end = self._ends[at] if at in self._ends else self._visible([topic])[at]
        return max(0, end - self._start(topic, partition))

    def range(self, topic: str, partition: int) -> Range:
        """See `LogSource`."""
        found = self._ranges.setdefault((topic, partition), Range(end=self._ends.get((topic, partition), 0)))
        found.start = self._start(topic, partition)
        return found

    def read_state(self, partition: int) -> Iterator[Sequence[Record]]:
        """See `LogSource`.

        To an end that hardly moves on while it is read: a record that compaction removes before it is read has a newer
        one of the same key, which must not lie behind the end.
        """
        at = (STATE_CHANGELOG.name, partition)
        position = 0
        while True:
            end = self._visible([at[0]])[at]
            yield from self._read(at, position or OFFSET_BEGINNING, end, counts=True)
            is_near = end - position < _NEAR_THE_END
            position = end
            if is_near:
                break
        self.range(*at).end = end

    def read_state_later(self, partition: int, start: int) -> Iterator[Sequence[Record]]:
        """See `LogSource`."""
        at = (STATE_CHANGELOG.name, partition)
        self._await_transactions({at: self._written([at[0]])[at]})
        return self._read(at, start, self._visible([at[0]])[at], counts=False)

    def take_ends(self) -> None:
        """See `LogSource`.

        A transaction that the changelog shows as committed has written all its records, and the broker is about to mark
        them in the other partitions. So what lies before the present ends of the logs becomes visible soon.
        """
        written = self._written([*_OUTPUTS, *_COMMANDS])
        self._await_transactions({at: end for at, end in written.items() if at[0] in _OUTPUTS})
        # Commands last: each that has made a visible output is visible too.
        visible = self._visible(_OUTPUTS) | self._visible(_COMMANDS)
        for at, end in visible.items():
            self._ends[at] = end
            self._ranges[at] = Range(end=end, is_settled=end >= written[at])

    def _await_transactions(self, written: Mapping[_At, int]) -> None:
        """Wait until all that is before these ends of logs can be read.

        A transaction of a worker that was killed is ended by its successor, or by the broker after its time-out; one
        that is still open then is left to itself.
        """
        patience_s = self._settings.transaction_timeout_ms / 1000 + _BROKER_ENDS_TRANSACTIONS_WITHIN_S
        deadline = time.monotonic() + patience_s
        topics = {topic for topic, _ in written}
        while time.monotonic() < deadline:
            visible = self._visible(topics)
            behind = [at for at, end in written.items() if visible[at] < end]
            if not behind:
                return
            topic, partition = behind[0]
            self._say(f"waiting for an open transaction in {self.name(topic)}[{partition}]")
            time.sleep(_OPEN_POLL_S)

    def read(self, topic: str, partition: int) -> Iterator[Sequence[Record]]:
        """See `LogSource`."""
        at = (topic, partition)
        return self._read(at, OFFSET_BEGINNING, self._ends[at], counts=True)

    def fetch(self, place: Place) -> Record | None:
        """See `LogSource`."""
        for records in self._read(
            (place.topic, place.partition), place.offset, place.offset + 1, counts=False
        ):
            for record in records:
                return record if record.offset() == place.offset else None
        return None

    def _read(self, at: _At, start: int, end: int, *, counts: bool) -> Iterator[Sequence[Record]]:
        """The records from an offset on up to `end`, in chunks; `counts`: they count for the partition's range."""
        if end <= max(start, self._start(*at)):
            return
        found = self._ranges.setdefault(at, Range(end=end))
        consumer = self._idle.pop() if self._idle else Consumer(self._config())
        consumer.assign([TopicPartition(self.name(at[0]), at[1], start)])
        try:
            for records in self._chunks(consumer, at[0], end):
                if counts:
                    if found.records == 0:
                        found.first_timestamp = records[0].timestamp()[1]
                    found.records += len(records)
                yield records
        finally:
            consumer.unassign()
            self._idle.append(consumer)

    def _chunks(self, consumer: Any, topic: str, end: int) -> Iterator[list[Any]]:
        """What the client reads next, up to an offset."""
        heard = time.monotonic()
        is_done = False
        while not is_done:
            messages = consumer.consume(_CHUNK, _POLL_S)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._settings.command_timeout_s:
                raise self._silent(topic)
            records = [message for message in messages if message.error() is None]
            if len(records) < len(messages):
                is_done = self._is_at(end, messages, topic)
            if records and records[-1].offset() >= end - 1:
                is_done = True
                if records[-1].offset() >= end:
                    records = [record for record in records if record.offset() < end]
            if records:
                yield records

    def _is_at(self, end: int, messages: Iterable[Any], topic: str) -> bool:
        """Whether the client tells that it is at the end. Raises `UserError` for what it cannot read."""
        is_at = False
        for message in messages:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                is_at = is_at or message.offset() >= end
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise UserError(
                    f"Retention has removed records of {self.name(topic)} while they were read.",
                    "run it again",
                    exit_code=2,
                )
            elif not error.retriable() and error.code() not in _PASSING:
                raise UserError(f"{self.name(topic)} could not be read: {error.str()}.", exit_code=2)
        return is_at

    def _silent(self, topic: str) -> UserError:
        return UserError(
            f"{self.name(topic)} could not be read: the broker has been silent for "
            f"{self._settings.command_timeout_s:g} s.",
            "check that Kafka runs",
            exit_code=2,
        )

    def _config(self) -> dict[str, Any]:
        return {
            **reader_config(self._settings),
            "auto.offset.reset": "error",
            # Enough to keep the reader busy, and not much more: it is a part of the memory that a verification takes.
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 16 * 1024,
        }

    def _start(self, topic: str, partition: int) -> int:
        return self._positions.starts(self.name(topic), self.partitions)[partition]

    def _visible(self, topics: Iterable[str]) -> dict[_At, int]:
        return self._offsets(topics, self._positions.visible)

    def _written(self, topics: Iterable[str]) -> dict[_At, int]:
        return self._offsets(topics, self._positions.ends)

    def _offsets(self, topics: Iterable[str], ask: Callable[[str, int], Positions]) -> dict[_At, int]:
        return {
            (topic, partition): offset
            for topic in topics
            for partition, offset in ask(self.name(topic), self.partitions).items()
        }


_PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE}
