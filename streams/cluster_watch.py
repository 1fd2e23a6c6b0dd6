"""Asks the cluster now and then whether a worker can work at all: a broker answers, and the topics are there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from streams.messaging.cluster_questions import ClusterQuestions

_log = logging.getLogger(__name__)

_PATIENCE_S = 3.0


class ClusterWatch:
    """The view of the cluster by a client of its own; call it in a thread, it blocks for up to 6 s."""

    def __init__(self, connection: Mapping[str, Any], topics: tuple[str, ...], partitions: int) -> None:
        """`topics` by their full names; each should have so many `partitions`."""
        self._brokers = connection["bootstrap.servers"]
        self._topics = list(topics)
        self._ids: dict[str, str] = {}
        self._partitions = partitions
        self._questions = ClusterQuestions({**connection, "logger": _log}, _PATIENCE_S)
        self.topics_changed = False
        """Topics were missing, or are others than at first: what the worker has set up does not fit any more."""

    def problem(self) -> str | None:
        """What is wrong, as a sentence for people; None when all is well."""
        try:
            topics = self._questions.ask(self._describe)
        except KafkaException as error:
            return f"no broker answers at {self._brokers}: {error.args[0].str()}"
        wrong = []
        for name, topic in topics.items():
            if topic is None:
                wrong.append(f"{name} is missing")
                continue
            if self._ids.setdefault(name, str(topic.topic_id)) != str(topic.topic_id):
                self.topics_changed = True
            if len(topic.partitions) != self._partitions:
                wrong.append(f"{name} has {len(topic.partitions)} partitions, not {self._partitions}")
        if not wrong:
            return None
        self.topics_changed = True
        return f"{', '.join(wrong)}: make topics with `runlane topics apply`"

    def _describe(self, admin: AdminClient) -> dict[str, Any]:
        """What each topic is; None for one that is missing."""
        futures = admin.describe_topics(TopicCollection(self._topics), request_timeout=_PATIENCE_S)
        return {name: _unless_missing(future) for name, future in futures.items()}


def _unless_missing(described: Future[Any]) -> Any:
    try:
        return described.result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return None
