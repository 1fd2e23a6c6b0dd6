"""How far topics are: the offsets that readers of committed records can see, and the logs' ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

_CALL_S = 15.0
_log = logging.getLogger(__name__)

Positions = dict[int, int]
"""Partition -> offset."""


class TopicPositions:
    """Asks a broker for offsets, cheaply enough to do it many times a second."""

    def __init__(self, brokers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": brokers, "logger": _log})

    def visible(self, topic: str, partitions: int) -> Positions:
        """Per partition the first offset that a `read_committed` reader cannot see yet."""
        return self._ask(topic, range(partitions), IsolationLevel.READ_COMMITTED)

    def ends(self, topic: str, partitions: int) -> Positions:
        """Per partition the end of the log, open transactions included."""
        return self._ask(topic, range(partitions), IsolationLevel.READ_UNCOMMITTED)

    def _ask(self, topic: str, partitions: Iterable[int], isolation: IsolationLevel) -> Positions:
        wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        futures: Mapping[TopicPartition, object] = self._admin.list_offsets(
            wanted, isolation_level=isolation, request_timeout=_CALL_S
        )
        return {at.partition: future.result().offset for at, future in futures.items()}  # type: ignore[attr-defined]
