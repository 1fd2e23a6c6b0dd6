"""A commit that the network delivers a second time, late: it must not end the producer's next transaction."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from schemas.topics import STATE_CHANGELOG
from streams import topic_admin
from streams.broker import local_broker
from streams.kafka_calls import LaneKafkaConfig
from streams.kafka_producer import KafkaProducer
from streams.messaging.topic_scan import scan_topic
from streams.ports import LaneLostError
from streams.settings import Settings
from streams.torture.proxy import Link, LinkFault

LATE_S = 1.0
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Settings, int, int]]:
    """Settings of a broker for this test alone, and the ports of a listener that a link stands in front of."""
    settings = Settings(brokers=None, partitions=1, broker_dir=tmp_path_factory.mktemp("broker"))
    try:
        broker = local_broker.up(settings, further_listeners=1)
        settings = settings.model_copy(update={"brokers": broker.address})
        topic_admin.apply(settings)
        yield settings, broker.further[0].advertised_port, broker.further[0].port
    finally:
        local_broker.remove(settings)


@pytest_asyncio.fixture
async def link(own_broker: tuple[Settings, int, int]) -> AsyncIterator[Link]:
    """The link to the broker."""
    link = Link(*own_broker[1:], random.Random(1))
    await link.start()
    yield link
    await link.close()


async def fenced(settings: Settings, link: Link) -> KafkaProducer:
    """The producer of a lane that was just taken over."""
    config = LaneKafkaConfig(
        {"bootstrap.servers": link.address, "client.id": "late"},
        1,
        settings.name,
        settings.transaction_timeout_ms,
    )
    producer = KafkaProducer(config, 0, 0, lambda: False)
    await asyncio.to_thread(producer.connect)
    await asyncio.to_thread(producer.fence)
    return producer


def visible(settings: Settings) -> list[bytes]:
    """The committed values of the changelog."""
    return [record.value() for record in scan_topic(settings, settings.name(STATE_CHANGELOG.name), 1)]


async def test_a_commit_that_may_come_again_is_the_last_of_its_producer(
    own_broker: tuple[Settings, int, int], link: Link
) -> None:
    settings = own_broker[0]
    producer = await fenced(settings, link)
    producer.produce([(b"key", b"first")], [], b"name-1")
    # Everything but the end of the transaction is on the broker.
    await asyncio.to_thread(producer._producer.flush, 30)
    link.impose(LinkFault.LATE, LATE_S, late_share=1.0)
    committed = asyncio.create_task(asyncio.to_thread(producer.commit))
    async with asyncio.timeout(PATIENCE_S):
        await link.held_back.wait()
    link.heal()
    # Sent again over a new connection, it succeeds.
    await committed
    # Otherwise the late one would commit what is produced now, before anybody says that it is complete.
    with pytest.raises(LaneLostError, match="connection"):
        producer.produce([(b"key", b"second")], [], b"name-2")
    await asyncio.sleep(2 * LATE_S)
    assert await asyncio.to_thread(visible, settings) == [b"first"]


async def test_a_commit_over_connections_that_hold_lets_the_producer_go_on(
    own_broker: tuple[Settings, int, int], link: Link
) -> None:
    settings = own_broker[0]
    producer = await fenced(settings, link)
    for number in range(3):
        producer.produce([(b"key", b"more %d" % number)], [], b"name")
        await asyncio.to_thread(producer.commit)
    assert (await asyncio.to_thread(visible, settings))[-3:] == [b"more 0", b"more 1", b"more 2"]
