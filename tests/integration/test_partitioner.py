"""Our partitioner against librdkafka's `murmur2_random`, on the real broker."""

import random

from confluent_kafka import Producer

from streams.partitioner import partition_for
from streams.settings import Settings


def test_librdkafka_puts_every_key_where_we_expect_it(settings: Settings) -> None:
    choice = random.Random(7)
    keys = [choice.randbytes(length) for length in range(1, 513) for _ in range(2)]
    keys += [f"play/{name}/run/{number}".encode() for name in ("a", "ö", "数") for number in range(50)]
    found: dict[bytes, int] = {}
    producer = Producer({"bootstrap.servers": settings.brokers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(
            settings.name("dead-letters"),
            key=key,
            on_delivery=lambda error, message: found.update({message.key(): message.partition()}),
        )
    assert producer.flush(30) == 0
    assert found == {key: partition_for(key, settings.partitions) for key in keys}
