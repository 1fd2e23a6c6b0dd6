"""Read a topic's committed records once, from given positions to the ends of its partitions."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from streams.messaging.kafka_config import reader_config
from streams.settings import Settings
from streams.user_errors import UserError

_POLL_S = 0.5


def scan_topic(settings: Settings, topic: str, positions: Mapping[int, int] | int) -> Generator[Any]:
    """The records (confluent_kafka messages), those of one partition in their order.

    `topic` is the name on the broker; `positions` holds the offset to begin at per partition, or the number
    of partitions to read from their beginning. Raises `UserError` when the broker falls silent or refuses.
    """
    if isinstance(positions, int):
        positions = dict.fromkeys(range(positions), OFFSET_BEGINNING)
    with closing(Consumer(reader_config(settings))) as consumer:
        consumer.assign([TopicPartition(topic, number, offset) for number, offset in positions.items()])
        unread = set(positions)
        heard = time.monotonic()
        while unread:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() - heard > settings.command_timeout_s:
                    raise UserError(
                        f"{topic} could not be read to its end: the broker has been silent for "
                        f"{settings.command_timeout_s:g} s.",
                        "check that Kafka runs",
                    )
                continue
            heard = time.monotonic()
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            elif not error.retriable():
                raise UserError(f"{topic} could not be read: {error.str()}.")
