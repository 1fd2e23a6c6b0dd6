"""A client that knows only the wire contract, as one in any language would be: it imports nothing of ours."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from tests.contract import raw_produce
from tests.contract.topic_reader import Record, TopicReader

Headers = Sequence[tuple[str, bytes | None]]

ANSWER_PATIENCE_S = 30.0
TOPICS = ("run-commands", "run-events", "run-terminals", "run-dispatch", "replies", "dead-letters")


@dataclass(frozen=True)
class Sent:
    """A record as the broker took it."""

    partition: int
    offset: int
    timestamp: int
    """The broker's time, in milliseconds since the epoch."""


@dataclass(frozen=True)
class Asked:
    """A command that was sent with a reply address."""

    command_id: str
    correlation_id: bytes
    sent: Sent


class BareClient:
    """Sends commands, to `<prefix>-run-commands` unless their type belongs elsewhere, and reads all topics."""

    def __init__(self, brokers: str, prefix: str, partitions: int, *, reply_partition: int = 0) -> None:
        self.partitions = partitions
        self.reply_partition = reply_partition
        self._prefix = prefix
        self._brokers = brokers
        self._producers: dict[str, Producer] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self.reader = TopicReader(brokers, {name: self.topic(name) for name in TOPICS})

    def close(self) -> None:
        """Stop reading."""
        self.reader.close()

    def topic(self, name: str) -> str:
        """The topic's name with the prefix."""
        return f"{self._prefix}-{name}" if self._prefix else name

    def partition_of(self, key: str | bytes) -> int:
        """The partition that owns the key."""
        return partition_of(key if isinstance(key, bytes) else key.encode(), self.partitions)

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Headers | None = None,
        partition: int | None = None,
        topic: str = "run-commands",
        compression: str = "none",
    ) -> Sent:
        """Append any record, by default to its key's partition (without a key: 0); returns when stored."""
        if partition is None:
            partition = 0 if key is None else self.partition_of(key)
        results: list[Any] = []
        producer = self._producer(compression)
        producer.produce(
            self.topic(topic),
            key=key,
            value=value,
            headers=list(headers) if headers is not None else None,
            partition=partition,
            on_delivery=lambda error, message: results.append(error or message),
        )
        producer.flush(ANSWER_PATIENCE_S)
        assert results, f"the broker did not take the record within {ANSWER_PATIENCE_S:.0f} s"
        assert hasattr(results[0], "offset"), f"the broker refused the record: {results[0]}"
        return Sent(partition, results[0].offset(), results[0].timestamp()[1])

    def send_raw(
        self,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: raw_produce.RawHeaders,
        partition: int,
        topic: str = "run-commands",
    ) -> int:
        """Append a record with headers of any bytes, also in their names; returns its offset."""
        topic = self.topic(topic)
        leader = self._leaders.get((topic, partition))
        if leader is None:
            metadata = self._producer("none").list_topics(topic, timeout=ANSWER_PATIENCE_S)
            node = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
            leader = self._leaders[topic, partition] = f"{node.host}:{node.port}"
        return raw_produce.produce(leader, topic, partition, key, value, headers)

    def post(
        self,
        type_: str,
        run_id: str,
        *,
        command_id: str | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        compression: str = "none",
        **fields: Any,
    ) -> str:
        """Send a command without a reply address (unless `headers` has one); returns its command id."""
        command_id = command_id or new_id()
        value = command(type_, run_id, command_id, **fields)
        self.send(
            value,
            key=run_id.encode(),
            headers=headers,
            partition=partition,
            topic=topic_of(type_),
            compression=compression,
        )
        return command_id

    def ask(
        self,
        type_: str,
        run_id: str,
        *,
        command_id: str | None = None,
        headers: Headers = (),
        partition: int | None = None,
        compression: str = "none",
        **fields: Any,
    ) -> Asked:
        """Send a command with a reply address of its own (after other `headers`)."""
        command_id = command_id or new_id()
        return self.ask_bytes(
            command(type_, run_id, command_id, **fields),
            key=run_id.encode(),
            command_id=command_id,
            headers=headers,
            partition=partition,
            topic=topic_of(type_),
            compression=compression,
        )

    def ask_bytes(
        self,
        value: bytes | None,
        *,
        key: bytes | None,
        command_id: str = "",
        headers: Headers = (),
        partition: int | None = None,
        topic: str = "run-commands",
        compression: str = "none",
    ) -> Asked:
        """Send any record with a reply address of its own (after other `headers`)."""
        correlation_id, address = self.reply_address()
        sent = self.send(
            value,
            key=key,
            headers=[*headers, *address],
            partition=partition,
            topic=topic,
            compression=compression,
        )
        return Asked(command_id, correlation_id, sent)

    def reply_address(self) -> tuple[bytes, list[tuple[str, bytes]]]:
        """A new correlation id, and the two headers that ask for a reply to it."""
        correlation_id = new_id().encode()
        partition = str(self.reply_partition).encode()
        return correlation_id, [("reply-partition", partition), ("correlation-id", correlation_id)]

    def reply_record(
        self, correlation_id: bytes, *, count: int = 1, patience_s: float = ANSWER_PATIENCE_S
    ) -> Record:
        """The `count`-th reply record with this correlation id, on any reply partition."""
        return self.reader.wait(
            "replies",
            lambda record: record.key == correlation_id,
            count=count,
            patience_s=patience_s,
            what=f"reply {count} to {correlation_id!r}",
        )[count - 1]

    def reply(self, asked: Asked, *, patience_s: float = ANSWER_PATIENCE_S) -> dict[str, Any]:
        """The answer to a command: `{"commandId", "ok", "result" or "error"}`."""
        return self.reply_record(asked.correlation_id, patience_s=patience_s).json()

    def call(self, type_: str, run_id: str, **options: Any) -> dict[str, Any]:
        """Send a command and await its answer; options as of `ask`."""
        return self.reply(self.ask(type_, run_id, **options))

    def result(self, type_: str, run_id: str, **options: Any) -> dict[str, Any]:
        """Send a command that must succeed and return its result; options as of `ask`."""
        answer = self.call(type_, run_id, **options)
        assert answer["ok"] is True, answer
        result = answer["result"]
        assert isinstance(result, dict), answer
        return result

    def refusal(self, type_: str, run_id: str, **options: Any) -> dict[str, Any]:
        """Send a command that must be refused and return its error; options as of `ask`."""
        answer = self.call(type_, run_id, **options)
        assert answer["ok"] is False, answer
        error = answer["error"]
        assert isinstance(error, dict), answer
        return error

    def append_log(self, run_id: str, line: str, **options: Any) -> dict[str, Any]:
        """Append a log event that must be accepted; the result `{seq, ts}`."""
        return self.result("events.append", run_id, event={"type": "log", "line": line}, **options)

    def event(self, run_id: str, seq: int) -> dict[str, Any]:
        """The event of a run with this `seq`, from `run-events`."""
        return self.event_record(run_id, seq).json()

    def event_record(self, run_id: str, seq: int) -> Record:
        """The record of the event of a run with this `seq`, from `run-events`."""
        key = run_id.encode()
        return self.reader.wait(
            "run-events",
            lambda record: record.key == key and record.json()["seq"] == seq,
            what=f"event {seq} of run {run_id!r}",
        )[0]

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """All events of a run, from `run-events`, after everything that was written before is read."""
        return [record.json() for record in self.settled("run-events", run_id.encode())]

    def terminal(self, run_id: str) -> dict[str, Any]:
        """The terminal state of a run, from `run-terminals`."""
        key = run_id.encode()
        wanted = self.reader.wait(
            "run-terminals", lambda record: record.key == key, what=f"terminal state of run {run_id!r}"
        )
        assert len(wanted) == 1, f"run {run_id!r} has {len(wanted)} terminal states"
        return wanted[0].json()

    def settled(self, topic: str, key: bytes | None) -> list[Record]:
        """All records of a key, after reading up to the topic's present end."""
        self.reader.catch_up(topic)
        return self.reader.records(topic, lambda record: record.key == key)

    def dead_letter(self, sent: Sent) -> Record:
        """The dead letter of a record that was sent to `run-commands`."""
        return self.dead_letter_at(sent.partition, sent.offset)

    def dead_letter_at(self, partition: int, offset: int) -> Record:
        """The dead letter of the command record at this place; fails when there are two."""
        found = self.reader.wait(
            "dead-letters",
            _came_from(partition, offset),
            what=f"dead letter of offset {offset}",
        )
        assert len(found) == 1, f"{len(found)} dead letters for offset {offset} of partition {partition}"
        return found[0]

    def dead_letters_of(self, sent: Sent) -> list[Record]:
        """The dead letters of a record, after reading up to the topic's present end."""
        self.reader.catch_up("dead-letters")
        return self.reader.records("dead-letters", _came_from(sent.partition, sent.offset))

    def transactional_producer(self, **settings: Any) -> Producer:
        """A producer for a client's own transactions, initialised."""
        producer = Producer({**self._settings("none"), "transactional.id": new_id(), **settings})
        producer.init_transactions(ANSWER_PATIENCE_S)
        return producer

    def _producer(self, compression: str) -> Producer:
        if compression not in self._producers:
            self._producers[compression] = Producer(self._settings(compression))
        return self._producers[compression]

    def _settings(self, compression: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._brokers,
            "compression.type": compression,
            "linger.ms": 0,
            # librdkafka checks this before it compresses.
            "message.max.bytes": 64 * 1024 * 1024,
        }


def topic_of(type_: str) -> str:
    """The topic of a command, without prefix."""
    return "rate-commands" if type_.startswith("rate.") else "run-commands"


def command(type_: str, key: str, command_id: str, **fields: Any) -> bytes:
    """The value of a command record."""
    id_field = "bucketId" if topic_of(type_) == "rate-commands" else "runId"
    body = {"type": type_, "commandId": command_id, id_field: key, **fields}
    return json.dumps(body, ensure_ascii=False).encode()


def new_id(prefix: str = "c") -> str:
    """An id that nobody used before."""
    return f"{prefix}-{uuid.uuid4().hex}"


def key_in_partition(partition: int, partitions: int, prefix: str = "run") -> str:
    """A new run id that this partition owns."""
    while True:
        run_id = new_id(prefix)
        if partition_of(run_id.encode(), partitions) == partition:
            return run_id


def partition_of(key: bytes, partitions: int) -> int:
    """The partition that Java clients choose for the key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """The hash of `org.apache.kafka.common.utils.Utils.murmur2`, as an unsigned 32-bit number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * m & mask
        k ^= k >> 24
        h = h * m & mask ^ (k * m & mask)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ h >> 15


def _came_from(partition: int, offset: int) -> Callable[[Record], bool]:
    place = (str(partition).encode(), str(offset).encode())

    def matches(record: Record) -> bool:
        if record.partition != partition:
            return False
        headers = dict(record.headers)
        return (headers.get("runlane.error.partition"), headers.get("runlane.error.offset")) == place

    return matches
