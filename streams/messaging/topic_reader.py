"""Read committed records of a topic in an event loop, from given positions, without a consumer group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from streams.messaging.kafka_config import reader_config
from streams.messaging.patience import patiently
from streams.settings import Settings

Start = Literal["beginning", "end"] | int
"""Where to start: the oldest record, after the newest, or the first one written at or after a time (ms)."""

_POLL_S = 0.2
_MOST_AT_ONCE = 1000
_log = logging.getLogger(__name__)


class TopicReader:
    """Reads some partitions of one topic. Cancelling a read loses nothing: the next one goes on there."""

    def __init__(
        self,
        settings: Settings,
        topic: str,
        partitions: Sequence[int],
        start: Start,
        *,
        key: bytes | None = None,
        on_close: Callable[[TopicReader], None] = lambda reader: None,
    ) -> None:
        """`topic` is the name on the broker; with `key`, records of other keys are passed over."""
        self.topic = topic
        self.partitions = tuple(partitions)
        self._settings = settings
        self._start = start
        self._key = key
        self._on_close = on_close
        self._at_end: set[int] = set()
        self._closed = False
        self._consumer: Any = None
        # The consumer blocks: it gets a thread of its own, so that readers never wait for each other.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="runlane-reader")
        self._fetch: asyncio.Future[list[Any]] | None = None

    async def open(self) -> None:
        """Take the positions. Every record that is committed after this call is seen from `end` on.

        Raises `UserError` when Kafka does not answer; then it may be tried again.
        """
        await self._in_thread(self._open)

    async def close(self) -> None:
        """Stop; a read in another task returns nothing more."""
        if self._closed:
            return
        self._closed = True
        if self._fetch is not None:
            await asyncio.wait({self._fetch})
        if self._consumer is not None:
            await self._in_thread(self._consumer.close)
        self._thread.shutdown(wait=False)
        self._on_close(self)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def at_end(self) -> bool:
        """Whether every partition has been read to its end at least once."""
        return len(self._at_end) == len(self.partitions)

    async def read(self) -> list[Any]:
        """The next records (confluent_kafka messages); empty when none came for a moment, or when closed."""
        if self._fetch is None:
            if self._closed:
                return []
            self._fetch = self._in_thread(self._take)
        fetch = self._fetch
        await asyncio.wait({fetch})
        self._fetch = None
        return fetch.result()

    def _in_thread(self, work: Callable[[], Any]) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        if self._consumer is not None:
            return
        consumer = Consumer(reader_config(self._settings))
        try:
            consumer.assign(self._places(consumer))
        except BaseException:
            consumer.close()
            raise
        self._consumer = consumer

    def _places(self, consumer: Any) -> list[Any]:
        """Where to begin."""
        places = [TopicPartition(self.topic, partition) for partition in self.partitions]
        if self._start == "beginning":
            for place in places:
                place.offset = OFFSET_BEGINNING
        else:
            # Ends first: a record that arrives between the two questions is then not jumped over.
            for place in places:
                place.offset = self._end(consumer, place)
            if self._start != "end":
                self._move_to_time(consumer, places, self._start)
        return places

    def _end(self, consumer: Any, place: Any) -> int:
        patience_s = self._settings.command_timeout_s
        _, end = patiently(
            lambda: consumer.get_watermark_offsets(place, patience_s),
            f"the end of {place.topic}[{place.partition}]",
            patience_s,
        )
        return int(end)

    def _move_to_time(self, consumer: Any, places: list[Any], start_ms: int) -> None:
        patience_s = self._settings.command_timeout_s
        asked = [TopicPartition(place.topic, place.partition, start_ms) for place in places]
        answers = patiently(
            lambda: consumer.offsets_for_times(asked, patience_s),
            f"the place of a time in {self.topic}",
            patience_s,
        )
        for place, found in zip(places, answers, strict=True):
            if found.offset >= 0:
                place.offset = min(place.offset, found.offset)

    def _take(self) -> list[Any]:
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return []
        # With a time-out of 0 this takes what is here already and waits for no more.
        messages = [first, *self._consumer.consume(_MOST_AT_ONCE, 0)]
        return [message for message in messages if self._wanted(message)]

    def _wanted(self, message: Any) -> bool:
        error = message.error()
        if error is None:
            return self._key is None or message.key() == self._key
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(message.partition())
        else:
            _log.warning("reading %s: %s", self.topic, error.str())
        return False
