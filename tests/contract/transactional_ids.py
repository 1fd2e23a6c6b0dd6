"""Transactional ids, read from the broker's own log of them. Imports nothing of ours."""

from __future__ import annotations

import struct
import uuid

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

PATIENCE_S = 30.0


def transactional_ids(broker: str, start: str) -> set[str]:
    """The transactional ids that the broker knows and that begin with `start`."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker,
            "group.id": f"bare-{uuid.uuid4().hex}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    topic = "__transaction_state"
    partitions = list(consumer.list_topics(topic, timeout=PATIENCE_S).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions])
    left, found = set(partitions), set()
    while left:
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"partitions {left} of {topic} were not read"
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            left.discard(message.partition())
        elif error is None and message.key() is not None:
            # A version of two bytes, then a string with its length.
            size = struct.unpack_from(">h", message.key(), 2)[0]
            found.add(message.key()[4 : 4 + size].decode())
    consumer.close()
    return {name for name in found if name.startswith(start)}
