"""Asks the cluster now and then whether a worker can work at all: a broker answers, and the topics are there."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

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
        self._config = {**connection, "logger": _log}
        self._admin: AdminClient | None = None
        self.topics_changed = False
        """Topics were missing, or are others than at first: what the worker has set up does not fit any more."""

    def problem(self) -> str | None:
        """What is wrong, as a sentence for people; None when all is well."""
        admin = self._admin
        # A client that goes on over a broker's restart may abort the process, by an assertion in librdkafka.
        self._admin = None
        if admin is None:
            admin = AdminClient(self._config)
            try:
                admin.list_topics(timeout=_PATIENCE_S)
            except KafkaException as error:
                return self._no_answer(error)
        wrong = []
        futures = admin.describe_topics(TopicCollection(self._topics), request_timeout=_PATIENCE_S)
        for name, future in futures.items():
            try:
                topic = future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return self._no_answer(error)
                wrong.append(f"{name} is missing")
                continue
            if self._ids.setdefault(name, str(topic.topic_id)) != str(topic.topic_id):
                self.topics_changed = True
            if len(topic.partitions) != self._partitions:
                wrong.append(f"{name} has {len(topic.partitions)} partitions, not {self._partitions}")
        self._admin = admin
        if not wrong:
            return None
        self.topics_changed = True
        return f"{', '.join(wrong)}: make topics with `runlane topics apply`"

    def _no_answer(self, error: KafkaException) -> str:
        return f"no broker answers at {self._brokers}: {error.args[0].str()}"
