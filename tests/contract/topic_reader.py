"""Reads topics in the background as an observer does: `read_committed`, from the start."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

_PATIENCE_S = 30.0


@dataclass(frozen=True)
class Record:
    """One record of a topic, as it was read."""

    topic: str
    """Without prefix."""
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    message: Message = field(repr=False)

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers in their order."""
        # Only for who asks: the native client fails on a header whose name is not UTF-8.
        return tuple(self.message.headers() or ())

    def json(self) -> dict[str, Any]:
        """The value as a JSON object."""
        assert self.value is not None, f"no value at offset {self.offset} of {self.topic}[{self.partition}]"
        body = json.loads(self.value)
        assert isinstance(body, dict), body
        return body


Predicate = Callable[[Record], bool]


class TopicReader:
    """Keeps every committed record of some topics; callers wait for those they need."""

    def __init__(self, brokers: str, topics: Mapping[str, str]) -> None:
        """`topics` maps the names to use here to those on the broker."""
        self._brokers = brokers
        self._names = {full: name for name, full in topics.items()}
        self._consumer = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": f"bare-{uuid.uuid4().hex}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 20,
                "allow.auto.create.topics": False,
            }
        )
        self._partitions = {
            name: [TopicPartition(full, partition) for partition in self._consumer_partitions(full)]
            for name, full in topics.items()
        }
        self._records: dict[str, list[Record]] = {name: [] for name in topics}
        self._counts: Counter[tuple[str, int]] = Counter()
        self._positions: dict[tuple[str, int], int] = {}
        self._problem: BaseException | None = None
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._consumer.assign(
            [
                TopicPartition(partition.topic, partition.partition, OFFSET_BEGINNING)
                for partitions in self._partitions.values()
                for partition in partitions
            ]
        )
        self._thread = threading.Thread(target=self._run, name="topic-reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stopping.set()
        self._thread.join(_PATIENCE_S)

    def records(self, topic: str, predicate: Predicate = lambda record: True) -> list[Record]:
        """What was read so far, in the order of each partition."""
        with self._changed:
            known = list(self._records[topic])
        return [record for record in known if predicate(record)]

    def count(self, topic: str, partition: int) -> int:
        """How many records of a partition were read so far."""
        return self._counts[topic, partition]

    def wait(
        self,
        topic: str,
        predicate: Predicate,
        *,
        what: str,
        count: int = 1,
        patience_s: float = _PATIENCE_S,
    ) -> list[Record]:
        """Wait until `count` records (or more) match; returns all that do. Fails with `what` is missing."""
        deadline = time.monotonic() + patience_s
        found: list[Record] = []
        looked_at = 0
        while True:
            with self._changed:
                if len(self._records[topic]) == looked_at:
                    self._changed.wait(max(0.0, min(1.0, deadline - time.monotonic())))
                fresh = self._records[topic][looked_at:]
                self._raise_problem()
            looked_at += len(fresh)
            found += [record for record in fresh if predicate(record)]
            if len(found) >= count:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{what} did not come within {patience_s:.0f} s ({looked_at} in {topic})"
                )

    def catch_up(self, topic: str, patience_s: float = _PATIENCE_S) -> None:
        """Read everything that is in the topic now, transactions that are still open included."""
        ends = end_offsets(self._brokers, self._partitions[topic])
        deadline = time.monotonic() + patience_s
        with self._changed:
            while behind := [p for p, end in ends.items() if self._positions.get((topic, p), 0) < end]:
                self._raise_problem()
                if time.monotonic() > deadline:
                    raise AssertionError(f"partitions {behind} of {topic} were not read to their end")
                self._changed.wait(0.1)

    def _consumer_partitions(self, full: str) -> list[int]:
        metadata = self._consumer.list_topics(full, timeout=_PATIENCE_S).topics[full]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        return sorted(metadata.partitions)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._take(self._consumer.consume(1000, timeout=0.05))
        except BaseException as problem:
            with self._changed:
                self._problem = problem
                self._changed.notify_all()
        finally:
            self._consumer.close()

    def _take(self, messages: list[Message]) -> None:
        if not messages:
            return
        with self._changed:
            for message in messages:
                name, partition = self._names[message.topic()], message.partition()
                error = message.error()
                if error is None:
                    self._records[name].append(_record(name, message))
                    self._counts[name, partition] += 1
                    self._positions[name, partition] = message.offset() + 1
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Behind the markers of transactions, which are no records.
                    self._positions[name, partition] = message.offset()
                elif not error.retriable():
                    raise KafkaException(error)
            self._changed.notify_all()

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise AssertionError("reading the topics failed") from self._problem


def end_offsets(brokers: str, partitions: list[TopicPartition]) -> dict[int, int]:
    """End offset of each partition of one topic, open transactions included."""
    # An admin client that outlives a restart of the broker is refused for its old leader epoch for ever.
    admin = AdminClient({"bootstrap.servers": brokers})
    # Connected first: the first list_offsets of a cold client stalls for seconds now and then.
    admin.list_topics(timeout=_PATIENCE_S)
    answers = admin.list_offsets(
        {TopicPartition(p.topic, p.partition): OffsetSpec.latest() for p in partitions},
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        request_timeout=_PATIENCE_S,
    )
    return {partition.partition: int(answer.result().offset) for partition, answer in answers.items()}


def _record(topic: str, message: Message) -> Record:
    return Record(
        topic=topic,
        partition=message.partition(),
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        timestamp=message.timestamp()[1],
        message=message,
    )
