"""Questions to a cluster through an admin client that can be trusted with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient

T = TypeVar("T")


class ClusterQuestions:
    """One admin client after another: each is connected before its first question, and dropped after an error.

    The first `list_offsets` of a client that is not connected stalls for 3 s now and then. One that has lived on over
    a broker's restart answers with FENCED_LEADER_EPOCH for ever, or aborts the process by an assertion in librdkafka.
    """

    def __init__(self, config: Mapping[str, Any], patience_s: float) -> None:
        """`config`: options of the native client; `patience_s`: how long connecting may take."""
        self._config = dict(config)
        self._patience_s = patience_s
        self._admin: AdminClient | None = None

    def ask(self, question: Callable[[AdminClient], T]) -> T:
        """The answer of `question(admin)` (blocking); what that raises, and `KafkaException` when nobody answers."""
        admin = self._admin
        self._admin = None
        if admin is None:
            admin = AdminClient(self._config)
            admin.list_topics(timeout=self._patience_s)
        answer = question(admin)
        self._admin = admin
        return answer

    def close(self) -> None:
        """Drop the client; the next question gets a new one."""
        self._admin = None
