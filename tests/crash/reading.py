"""Reads a history from the topics of a broker, by a bare consumer."""

from __future__ import annotations

from collections.abc import Iterable

from tests.contract.topic_reader import TopicReader
from tests.crash.history import TOPICS, History, Place, Row, SentCommand

_PATIENCE_S = 120.0


def read_history(brokers: str, prefix: str, partitions: int, sent: Iterable[SentCommand]) -> History:
    """All that is on the topics now, beside what the client sent."""
    reader = TopicReader(brokers, {topic: f"{prefix}-{topic}" if prefix else topic for topic in TOPICS})
    try:
        rows = {}
        for topic in TOPICS:
            reader.catch_up(topic, _PATIENCE_S)
            rows[topic] = [
                Row(Place(topic, r.partition, r.offset), r.key, r.value, r.headers)
                for r in reader.records(topic)
            ]
    finally:
        reader.close()
    return History(partitions, rows, list(sent))
