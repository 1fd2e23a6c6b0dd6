"""The ceiling that runlane is measured against, as a process of its own: consume and produce, nothing else.

One record in, the same bytes out to the same partition, in batches, with the native client and an idempotent
producer; at least once: positions are committed when what was made of them is acknowledged.
"""

from __future__ import annotations

import signal
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from schemas.topics import RUN_COMMANDS
from streams.cli.session import load_settings
from streams.messaging.kafka_security import security_config
from streams.settings import Settings

OUTPUT = "bench-bare-output"
GROUP = "bench-bare"

_BATCH = 2000
_COMMIT_EVERY_S = 1.0


def run(settings: Settings, brokers: str) -> None:
    """Copy until SIGTERM."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    connection: dict[str, Any] = {"bootstrap.servers": brokers, **security_config(settings)}
    consumer = Consumer(
        {
            **connection,
            "group.id": settings.name(GROUP),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            # By default it stops fetching for a second whenever enough is fetched ahead.
            "fetch.queue.backoff.ms": 10,
        }
    )
    producer = Producer(
        {
            **connection,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 500_000,
        }
    )
    output = settings.name(OUTPUT)
    consumer.subscribe([settings.name(RUN_COMMANDS.name)])
    committed_at = time.monotonic()
    while not stopping:
        for message in consumer.consume(_BATCH, 0.1):
            if message.error() is not None:
                raise KafkaException(message.error())
            while True:
                try:
                    producer.produce(output, message.value(), message.key(), message.partition())
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        if time.monotonic() - committed_at > _COMMIT_EVERY_S:
            positions = consumer.position(consumer.assignment())
            producer.flush()
            if positions := [at for at in positions if at.offset >= 0]:
                consumer.commit(offsets=positions, asynchronous=True)
            committed_at = time.monotonic()
    consumer.close()


if __name__ == "__main__":
    settings = load_settings()
    run(settings, settings.brokers or "")
