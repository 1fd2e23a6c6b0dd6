"""The in-memory Kafka and a real one behind the same few calls, so that one suite runs on both."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from streams import topic_admin
from streams.kafka_calls import LaneKafkaConfig
from streams.kafka_cluster import KafkaLaneCluster
from streams.messaging.kafka_config import address_config
from streams.ports import LaneCluster, LoggedRecord, OutRecord, TransactionalProducer
from streams.settings import Settings
from tests.integration.half_marked import losing_markers
from tests.simulation.memory_cluster import MemoryLaneCluster, MemoryProducer, PerfectNetwork, lane_writer
from tests.simulation.memory_kafka import MemoryKafka

REFUSED_BYTES = 4000
"""The topic `queue-deliveries` takes no records that are larger."""


class Seen(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    key: bytes | None
    value: bytes | None


class ClientTransaction(Protocol):
    """An open transaction of some other client."""

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Produce a record; it has reached the log when this returns."""

    def commit(self) -> None:
        """Commit; the markers may still be under way."""

    def abort(self) -> None:
        """Abort; the markers may still be under way."""


class Side(Protocol):
    """A cluster under test, and one partition number of it that belongs to the test."""

    partition: int

    def lane(self) -> LaneCluster:
        """The cluster as the partition's lane sees it."""

    def losing(self, index: int, topics: Iterable[str]) -> TransactionalProducer:
        """A producer of the lane whose next transaction gets no markers in these topics."""

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """A plain producer's record."""

    def begin(self, transactional_id: str) -> ClientTransaction:
        """A transaction of some other client."""

    def read(self, topic: str) -> list[Seen]:
        """All committed records of the partition up to its end or its last stable offset."""

    def delete_before(self, topic: str, offset: int) -> None:
        """What retention does."""

    def make_anew(self) -> None:
        """Delete all topics and make them again."""


class MemorySide:
    """The in-memory Kafka. Markers are written when somebody waits for them or looks."""

    def __init__(self) -> None:
        self.partition = 1
        self.kafka = MemoryKafka(
            3,
            now=lambda: time.time_ns() // 1_000_000,
            send_marker=lambda write, commits: None,
            elapsed=time.monotonic,
        )

    def lane(self) -> MemoryLaneCluster:
        """See `Side`."""
        self.kafka.write_markers()
        return _Looking(self.kafka, self.partition, PerfectNetwork(), refuses=_is_refused)

    def losing(self, index: int, topics: Iterable[str]) -> TransactionalProducer:
        """See `Side`."""
        kafka, lost = self.kafka, frozenset(topics)

        class Losing(MemoryProducer):
            def commit(self) -> int:
                position = super().commit()
                kafka.lose_markers(lambda transaction, at: at[0] in lost)
                return position

            def write(self, records: Iterable[OutRecord], *, commit: bool) -> None:
                super().write(records, commit=commit)
                kafka.lose_markers(lambda transaction, at: at[0] in lost)

        return Losing(self.lane(), lane_writer(self.partition, index))

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """See `Side`."""
        self.kafka.append((topic, self.partition), key, value)

    def begin(self, transactional_id: str) -> ClientTransaction:
        """See `Side`."""
        return _MemoryTransaction(self, transactional_id)

    def read(self, topic: str) -> list[Seen]:
        """See `Side`."""
        self.kafka.write_markers()
        log = self.kafka.log((topic, self.partition))
        records, _ = log.read(log.start, log.end + 1)
        return [Seen(record.offset, record.key, record.value) for record in records]

    def delete_before(self, topic: str, offset: int) -> None:
        """See `Side`."""
        self.kafka.log((topic, self.partition)).delete_before(offset)

    def make_anew(self) -> None:
        """See `Side`."""
        self.kafka.make_anew()


class _Looking(MemoryLaneCluster):
    def hung(self) -> list[LoggedRecord]:
        self.kafka.write_markers()
        return super().hung()


class _MemoryTransaction:
    def __init__(self, side: MemorySide, transactional_id: str) -> None:
        self._kafka, self._id, self._partition = side.kafka, transactional_id, side.partition
        self._epoch = self._kafka.init(transactional_id)
        self._kafka.begin(transactional_id, self._epoch)

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._kafka.produce(self._id, self._epoch, (topic, self._partition), key, value)

    def commit(self) -> None:
        self._kafka.end(self._id, self._epoch, commit=True)

    def abort(self) -> None:
        self._kafka.end(self._id, self._epoch, commit=False)


class KafkaSide:
    """A real broker, through the lane's own clients on one side and plain ones on the other."""

    def __init__(self, settings: Settings, partition: int) -> None:
        self.partition = partition
        self._settings = settings
        self._config = LaneKafkaConfig(address_config(settings), settings.partitions, settings.name, 60_000)

    def lane(self) -> KafkaLaneCluster:
        """See `Side`."""
        return KafkaLaneCluster(self._config, self.partition, lambda: False)

    def losing(self, index: int, topics: Iterable[str]) -> TransactionalProducer:
        """See `Side`."""
        return losing_markers(topics)(self._config, self.partition, lambda: False).producer(index)

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """See `Side`."""
        producer = Producer({"bootstrap.servers": self._settings.brokers})
        producer.produce(self._settings.name(topic), value, key, self.partition)
        assert producer.flush(30) == 0

    def begin(self, transactional_id: str) -> ClientTransaction:
        """See `Side`."""
        return _KafkaTransaction(self._settings, self.partition, transactional_id)

    def read(self, topic: str) -> list[Seen]:
        """See `Side`."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._settings.brokers,
                "group.id": "contract",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "auto.offset.reset": "earliest",
            }
        )
        found: list[Seen] = []
        try:
            consumer.assign([TopicPartition(self._settings.name(topic), self.partition, 0)])
            for message in _messages(consumer):
                if message.error():
                    return found
                found.append(Seen(message.offset(), message.key(), message.value()))
        finally:
            consumer.close()
        raise AssertionError(f"{topic} could not be read to its end")

    def delete_before(self, topic: str, offset: int) -> None:
        """See `Side`."""
        admin = AdminClient({"bootstrap.servers": self._settings.brokers})
        admin.list_topics(timeout=30)
        at = TopicPartition(self._settings.name(topic), self.partition, offset)
        for future in admin.delete_records([at]).values():
            future.result()

    def make_anew(self) -> None:
        """See `Side`."""
        topic_admin.delete(self._settings)
        topic_admin.apply(self._settings)


def _messages(consumer: Consumer) -> Iterable[Any]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None:
            yield message


class _KafkaTransaction:
    def __init__(self, settings: Settings, partition: int, transactional_id: str) -> None:
        self._settings, self._partition = settings, partition
        full_id = settings.name(f"{transactional_id}-{partition}")
        self._producer = Producer({"bootstrap.servers": settings.brokers, "transactional.id": full_id})
        self._producer.init_transactions(30)
        self._producer.begin_transaction()

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.produce(self._settings.name(topic), value, key, self._partition)
        assert self._producer.flush(30) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(30)

    def abort(self) -> None:
        self._producer.abort_transaction(30)


def _is_refused(record: OutRecord) -> bool:
    return record.topic == "queue-deliveries" and len(record.value or b"") > REFUSED_BYTES


def until(side: Side, topic: str, wanted: Callable[[list[Seen]], bool]) -> list[Seen]:
    """What is readable, once it is as wanted: markers arrive a little after the call that made them returns."""
    deadline = time.monotonic() + 30
    while not wanted(found := side.read(topic)):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found
