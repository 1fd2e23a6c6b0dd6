"""Read dead letters, and send the records in them again (spec wire 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from schemas import dead_letters as headers_of
from schemas.errors import ERRORS, ErrorCode
from schemas.topics import DEAD_LETTERS
from streams import topic_admin
from streams.messaging.kafka_config import producer_config
from streams.messaging.topic_scan import scan_topic
from streams.partitioner import partition_for
from streams.ports import HEAL_KEY
from streams.settings import Settings
from streams.user_errors import UserError

_SEND_PATIENCE_S = 30.0

Header = tuple[str, bytes | None]


@dataclass(frozen=True)
class DeadLetter:
    """One record of the topic `dead-letters`: the original key and value, its headers and ours."""

    partition: int
    offset: int
    timestamp: int
    """When it became a dead letter, in ms since the epoch."""
    key: bytes | None
    value: bytes | None
    """None also when it was not asked for."""
    value_bytes: int | None
    """How large the value is; None when there is none."""
    headers: tuple[Header, ...]

    @property
    def place(self) -> str:
        """`partition:offset`, the name of the dead letter on the command line."""
        return f"{self.partition}:{self.offset}"

    @property
    def code(self) -> str:
        """Why it is here; empty when the header is missing."""
        return self.text(headers_of.CODE) or ""

    @property
    def message(self) -> str:
        """Why it is here, for people."""
        return self.text(headers_of.MESSAGE) or ""

    @property
    def topic(self) -> str | None:
        """The topic that it was read from, with the prefix."""
        return self.text(headers_of.TOPIC)

    @property
    def original_place(self) -> str:
        """`topic[partition]@offset` of the record that it was."""
        partition = self.text(headers_of.PARTITION) or "?"
        return f"{self.topic or '?'}[{partition}]@{self.text(headers_of.OFFSET) or '?'}"

    @property
    def traceback(self) -> str | None:
        """Where the coordinator failed, for `INTERNAL_ERROR`."""
        return self.text(headers_of.TRACEBACK)

    @property
    def left_out_bytes(self) -> str | None:
        """How large the value was that was left out; None when the value is here."""
        return self.text(headers_of.VALUE_BYTES)

    @property
    def own_headers(self) -> list[Header]:
        """The headers with which the record was sent."""
        return [header for header in self.headers if not header[0].startswith(headers_of.HEADER_PREFIX)]

    def text(self, name: str) -> str | None:
        """The last header of this name, as text."""
        values = [value for header, value in self.headers if header == name and value is not None]
        return values[-1].decode("utf-8", "replace") if values else None

    def why_not_replayable(self) -> str | None:
        """Why the record cannot be sent again; None when it can be."""
        if self.text(headers_of.VALUE_WITHHELD) is not None:
            return (
                "its value was withheld, since it may hold database sessions in the clear; its sender has to send "
                "it again, encrypted"
            )
        if self.left_out_bytes is not None:
            return (
                f"its value of {self.left_out_bytes} bytes was too large to be kept here; its sender has to "
                "send it again"
            )
        if self.code == ErrorCode.COMMANDS_EXPIRED:
            return f"it is a notice, not a command: {ERRORS[ErrorCode.COMMANDS_EXPIRED].meaning}"
        if self.topic is None:
            return f"it has no header {headers_of.TOPIC}, so nobody knows where it belongs"
        return None


@dataclass(frozen=True)
class Replayed:
    """A record that was sent again."""

    letter: DeadLetter
    topic: str
    partition: int
    offset: int


def scan(settings: Settings, *, with_values: bool) -> Iterator[DeadLetter]:
    """All dead letters of this prefix; those of one partition in the order of their offsets.

    Values are dropped unless asked for: each may have 4 MiB. Raises `UserError` when the broker does not
    answer or the topic is missing.
    """
    partitions = topic_admin.require_equal_partitions(settings, patience_s=settings.command_timeout_s)
    topic = settings.name(DEAD_LETTERS.name)
    for message in scan_topic(settings, topic, partitions):
        if message.key() == HEAL_KEY:
            continue
        letter = _letter(message)
        yield letter if with_values else replace(letter, value=None)


def fetch(settings: Settings, partition: int, offset: int) -> DeadLetter:
    """The dead letter at a place. Raises `UserError` when there is none."""
    partitions = topic_admin.require_equal_partitions(settings, patience_s=settings.command_timeout_s)
    topic = settings.name(DEAD_LETTERS.name)
    if partition >= partitions:
        raise UserError(
            f"There is no partition {partition} in {topic}.", f"its partitions are 0..{partitions - 1}"
        )
    with closing(scan_topic(settings, topic, {partition: offset})) as messages:
        message = next(messages, None)
    if message is None or message.offset() != offset:
        raise UserError(
            f"There is no dead letter at {partition}:{offset} in {topic}.",
            "`runlane dead-letters list` shows where they are; the topic's retention deletes old ones",
        )
    return _letter(message)


def replay(settings: Settings, letters: Iterable[DeadLetter]) -> list[Replayed]:
    """Send the records to the topics they came from: key, value and their own headers as they were.

    Each must be replayable and have its value. Sending one twice is safe: a command takes effect once, by its
    id. Raises `UserError` when one could not be sent; those before it are sent.
    """
    partitions = topic_admin.require_equal_partitions(settings, patience_s=settings.command_timeout_s)
    producer = Producer(producer_config(settings, _SEND_PATIENCE_S))
    sent: list[Replayed] = []
    for letter in letters:
        if reason := letter.why_not_replayable():
            raise ValueError(f"{letter.place} cannot be sent again: {reason}")
        sent.append(_send(producer, letter, partitions))
    return sent


def _send(producer: Any, letter: DeadLetter, partitions: int) -> Replayed:
    topic = letter.topic or ""
    partition = partition_for(letter.key, partitions) if letter.key else letter.partition
    outcome = Replayed(letter, topic, partition, -1)
    failure: KafkaError | None = None

    def delivered(error: KafkaError | None, message: Any) -> None:
        nonlocal outcome, failure
        failure, outcome = error, replace(outcome, offset=message.offset() or 0)

    try:
        producer.produce(topic, letter.value, letter.key, partition, delivered, headers=letter.own_headers)
        # One after another: the order of the dead letters is kept, and an error names its record.
        producer.flush()
    except KafkaException as error:
        failure = error.args[0]
    if failure is not None:
        raise UserError(f"{letter.place} could not be sent to {topic}[{partition}]: {failure.str()}")
    return outcome


def _letter(message: Any) -> DeadLetter:
    return DeadLetter(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        value_bytes=None if message.value() is None else len(message.value()),
        headers=tuple(message.headers() or ()),
    )
