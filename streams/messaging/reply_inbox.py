"""A client's own place for answers: it reads one partition of `replies` from before its first command."""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from schemas.json_codec import InvalidJsonError, decode
from schemas.replies import Reply
from streams.messaging.patience import patiently

_POLL_S = 0.1
_log = logging.getLogger(__name__)


class ReplyInbox:
    """Reads a reply partition in a thread of its own and passes on the replies that are this client's.

    Other clients share the partition: replies to their correlation ids are passed over, and so is everything
    that is no reply.
    """

    def __init__(
        self, config: dict[str, Any], topic: str, partition: int, on_reply: Callable[[bytes, Reply], None]
    ) -> None:
        """`on_reply(correlation_id, reply)` is called in the inbox's thread."""
        self.topic = topic
        self.partition = partition
        self._config = config
        self._on_reply = on_reply
        self._prefix = f"{secrets.token_hex(8)}-".encode()
        self._issued = 0
        self._stop = threading.Event()
        self._consumer: Any = None
        self._thread = threading.Thread(target=self._read, name="runlane-replies", daemon=True)

    def next_correlation_id(self) -> bytes:
        """A correlation id that no other client, and no other command of this one, has."""
        self._issued += 1
        return b"%s%d" % (self._prefix, self._issued)

    def start(self, timeout_s: float) -> None:
        """Take the position (blocking): replies to commands sent after this call are seen, without exception.

        Raises `UserError` when the broker does not answer in time.
        """
        self._consumer = Consumer(self._config)
        # An explicit offset: "the end" would be looked up later, perhaps after the first reply.
        place = TopicPartition(self.topic, self.partition)
        _, place.offset = patiently(
            lambda: self._consumer.get_watermark_offsets(place, timeout_s),
            f"the end of {self.topic}[{self.partition}]",
            timeout_s,
        )
        self._consumer.assign([place])
        self._thread.start()

    def close(self) -> None:
        """Stop reading (blocking, at most about a poll)."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._consumer is not None:
            self._consumer.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(_POLL_S)
            while message is not None:
                self._take(message)
                # Whatever else is here already, without waiting for more.
                message = self._consumer.poll(0)

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                _log.warning("reading replies from %s[%d]: %s", self.topic, self.partition, error.str())
            return
        key, value = message.key(), message.value()
        if key is None or value is None or not key.startswith(self._prefix):
            return
        try:
            reply = Reply.model_validate(decode(value))
        except (InvalidJsonError, ValueError):
            _log.warning(
                "a record of %s[%d] under our correlation id is no reply", self.topic, self.partition
            )
            return
        self._on_reply(key, reply)
