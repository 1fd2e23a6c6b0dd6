"""Transactions whose markers a broker lost on some partitions, made on a real broker.

Kafka's own protocol is spoken by hand: the records for some partitions are written under the transaction's producer
id, but the coordinator is never told of these partitions, so it writes no marker there. That is what the log looks
like after a crash that lost them. The broker's check against this has to be off
(`transaction.partition.verification.enable`).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from aiokafka import TopicPartition
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from msgspec.structs import replace
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from streams.kafka_calls import LaneKafkaConfig
from streams.kafka_cluster import KafkaLaneCluster
from streams.lane_factory import MakeCluster
from streams.ports import OutRecord, StateChange
from streams.transaction_names import TRANSACTION

T = TypeVar("T")
_CHANGELOG = "state-changelog"
_NOT_YET = {
    5,  # A new partition has no leader,
    6,  # or its leader does not know it yet.
    14,  # The coordinator reads its log,
    15,  # or is not there yet,
    16,  # or is only about to become it.
    48,  # The check of transactions is not off yet.
    51,  # An earlier transaction of the id gets its markers.
}


class _NotYetError(Exception):
    pass


@contextmanager
def unverified_transactions(brokers: str) -> Iterator[None]:
    """The brokers take records of a transaction for partitions that its coordinator does not know."""
    _set_brokers(brokers, AlterConfigOpType.SET, "false")
    try:
        yield
    finally:
        _set_brokers(brokers, AlterConfigOpType.DELETE, None)


def losing_markers(topics: Iterable[str]) -> MakeCluster:
    """Clusters whose producers' transactions get no markers in these topics; none at all when all are named."""
    lost = frozenset(topics)

    class Cluster(KafkaLaneCluster):
        def producer(self, index: int) -> HalfMarkingProducer:  # type: ignore[override]
            return HalfMarkingProducer(self._config, self._partition, index, lost)

    return Cluster


class HalfMarkingProducer:
    """See `streams.ports.TransactionalProducer`; made for one process that does one batch."""

    def __init__(self, config: LaneKafkaConfig, partition: int, index: int, lost: frozenset[str]) -> None:
        self._config, self._partition, self._lost = config, partition, lost
        self._id = config.full_name(f"lane-{partition}-{index}")
        self._producer_id, self._epoch = -1, -1
        self._has_marked = False
        self._position = -1

    def connect(self) -> None:
        """Each request connects by itself."""

    def fence(self) -> None:
        """Take the transactional id over."""

        async def init(client: AIOKafkaClient) -> None:
            request = InitProducerIdRequest(self._id, 60_000)
            answer = await _accepted(
                lambda: self._coordinate(client, request), lambda found: found.error_code
            )
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch

        self._run(init)

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord], name: bytes) -> None:
        """Write all records; only some of their partitions are made known to the coordinator."""
        state = [OutRecord(_CHANGELOG, self._partition, *change) for change in changes]
        state[0] = replace(state[0], headers=[(TRANSACTION, name)])
        self._produce([*state, *outputs])

    def _produce(self, records: Iterable[OutRecord]) -> None:
        batches: dict[tuple[str, int], list[OutRecord]] = defaultdict(list)
        for record in records:
            batches[record.topic, record.partition].append(record)

        async def send(client: AIOKafkaClient) -> None:
            for (topic, partition), records in batches.items():
                full_name = self._config.names[topic]
                if topic not in self._lost:
                    self._has_marked = True
                    add = AddPartitionsToTxnRequest(
                        self._id, self._producer_id, self._epoch, [(full_name, [partition])]
                    )
                    await _accepted(
                        partial(self._coordinate, client, add), lambda found: found.errors[0][1][0][1]
                    )
                produce = ProduceRequest(
                    transactional_id=self._id,
                    required_acks=-1,
                    timeout=10_000,
                    topics=[(full_name, [(partition, self._batch(records))])],
                )
                node = await self._leader(client, full_name, partition)
                ask = partial(client.send, node, produce)
                answer = await _accepted(ask, lambda found: found.topics[0][1][0][1])
                if topic == _CHANGELOG:
                    self._position = answer.topics[0][1][0][2] + len(records)

        self._run(send)

    def commit(self) -> int:
        """Commit; when no partition is known to the coordinator there is nothing that could be committed."""

        async def end(client: AIOKafkaClient) -> None:
            request = EndTxnRequest(self._id, self._producer_id, self._epoch, True)
            await _accepted(lambda: self._coordinate(client, request), lambda found: found.error_code)

        if self._has_marked:
            self._run(end)
        return self._position

    def write(self, records: Iterable[OutRecord], *, commit: bool) -> None:
        """The same of one transaction that is committed."""
        assert commit
        self._produce(records)
        self.commit()

    def close(self) -> None:
        """Nothing is kept open."""

    def _batch(self, records: Sequence[OutRecord]) -> bytes:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=0,
            is_transactional=1,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            batch_size=1 << 20,
        )
        now = int(time.time() * 1000)
        for number, record in enumerate(records):
            headers = [(name, value or b"") for name, value in record.headers or ()]
            assert builder.append(number, now, record.key, record.value, headers) is not None
        return bytes(builder.build())

    async def _coordinate(self, client: AIOKafkaClient, request: Any) -> Any:
        node = await client.coordinator_lookup(CoordinationType.TRANSACTION, self._id)
        await client.ready(node)
        return await client.send(node, request)

    async def _leader(self, client: AIOKafkaClient, name: str, partition: int) -> int:
        await client._wait_on_metadata(name)
        leader = client.cluster.leader_for_partition(TopicPartition(name, partition))
        assert leader is not None
        return int(leader)

    def _run(self, work: Callable[[AIOKafkaClient], Awaitable[T]]) -> T:
        async def run() -> T:
            client = AIOKafkaClient(bootstrap_servers=self._config.connection["bootstrap.servers"])
            await client.bootstrap()
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())


@retry(retry=retry_if_exception_type(_NotYetError), wait=wait_fixed(0.05), stop=stop_after_delay(60))
async def _accepted(ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]) -> Any:
    """The answer, asked for again while the broker is not ready for it."""
    answer = await ask()
    if code(answer) in _NOT_YET:
        raise _NotYetError(f"error {code(answer)}")
    assert code(answer) == 0, f"error {code(answer)}"
    return answer


def _set_brokers(brokers: str, operation: AlterConfigOpType, value: str | None) -> None:
    admin = AdminClient({"bootstrap.servers": brokers})
    entry = ConfigEntry("transaction.partition.verification.enable", value, incremental_operation=operation)
    for number in admin.list_topics(timeout=30).brokers:
        resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result()
