"""How far topics are: where their logs begin, the offsets that readers of committed records can see, and the ends."""

from __future__ import annotations

import logging

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from streams.messaging.cluster_questions import ClusterQuestions
from streams.messaging.kafka_config import address_config
from streams.settings import Settings

_CALL_S = 15.0
_PATIENCE_S = 30.0
_log = logging.getLogger(__name__)

Positions = dict[int, int]
"""Partition -> offset."""

# A broker that has only just made a topic does not know its leaders yet; one that is busy takes its time.
_PASSING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
}


def passes(error: BaseException | None) -> bool:
    """Whether what failed may work a moment later."""
    return isinstance(error, KafkaException) and error.args[0].code() in _PASSING


class TopicPositions:
    """Asks a broker for offsets, cheaply enough to do it many times a second."""

    def __init__(self, settings: Settings) -> None:
        self._questions = ClusterQuestions({**address_config(settings), "logger": _log}, _CALL_S)

    def starts(self, topic: str, partitions: int) -> Positions:
        """Per partition the first offset that retention has left."""
        return self._ask(topic, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def visible(self, topic: str, partitions: int) -> Positions:
        """Per partition the first offset that a `read_committed` reader cannot see yet."""
        return self._ask(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def ends(self, topic: str, partitions: int) -> Positions:
        """Per partition the end of the log, open transactions included."""
        return self._ask(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    @retry(
        retry=retry_if_exception(passes),
        stop=stop_after_delay(_PATIENCE_S),
        wait=wait_fixed(0.05),
        reraise=True,
    )
    def _ask(self, topic: str, partitions: int, spec: OffsetSpec, isolation: IsolationLevel) -> Positions:
        wanted = {TopicPartition(topic, partition): spec for partition in range(partitions)}

        def offsets(admin: AdminClient) -> Positions:
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=_CALL_S)
            return {at.partition: future.result().offset for at, future in futures.items()}

        return self._questions.ask(offsets)
