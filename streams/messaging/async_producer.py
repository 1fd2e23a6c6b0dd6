"""The native Kafka producer for an event loop: deliveries are futures, a full queue is waited out."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streams.messaging.loop_inbox import LoopInbox

_POLL_S = 0.1
_log = logging.getLogger(__name__)

Delivery = asyncio.Future[tuple[int, int]]
"""Where a record was stored: (partition, offset). Its exception is a `KafkaException`."""


class AsyncProducer:
    """Produces from one event loop; records with the same key keep their order."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Start the producer's thread; to be called in the loop that will use it."""
        self._producer = Producer(dict(config))
        self._loop = asyncio.get_running_loop()
        self._inbox: LoopInbox[tuple[Delivery, KafkaError | None, tuple[int, int]]] = LoopInbox(
            self._loop, self._settle
        )
        self._room = asyncio.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="runlane-producer", daemon=True)
        self._thread.start()

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> Delivery:
        """Queue a record; waits while the queue is full. The result completes when the broker has stored it.

        Raises `KafkaException` for a record that can never be sent (over `message.max.bytes`).
        """
        delivery: Delivery = self._loop.create_future()

        def delivered(error: KafkaError | None, message: Message) -> None:
            stored_at = (message.partition() or 0, message.offset() or 0)
            self._inbox.put((delivery, error, stored_at))

        while True:
            self._room.clear()
            try:
                self._producer.produce(topic, value, key, headers=headers or [], on_delivery=delivered)
            except BufferError:
                await self._room.wait()
            else:
                return delivery

    async def close(self, timeout_s: float) -> int:
        """Send what is queued, for at most `timeout_s`; returns how many records were given up."""
        left: int = await asyncio.to_thread(self._producer.flush, timeout_s)
        if left:
            self._producer.purge()
            await asyncio.to_thread(self._producer.flush, 1.0)
            _log.warning("%d records could not be sent to Kafka before the producer was closed", left)
        self._stop.set()
        await asyncio.to_thread(self._thread.join)
        return left

    def _settle(self, item: tuple[Delivery, KafkaError | None, tuple[int, int]]) -> None:
        delivery, error, stored_at = item
        self._room.set()
        if delivery.done():
            return
        if error is None:
            delivery.set_result(stored_at)
        else:
            delivery.set_exception(KafkaException(error))
            # Whoever does not look at the delivery does not want a warning about it either.
            delivery.exception()

    def _poll(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(_POLL_S)
