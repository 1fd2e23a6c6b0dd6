"""Follow what the coordinator writes: a run's events, all events, all ends of runs (DESIGN 2)."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import orjson

from schemas.terminals import TerminalState
from streams.client_errors import EventsMissing
from streams.messaging.topic_reader import TopicReader
from streams.run_events import AnyRunEvent, read_event

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Following(AsyncIterator[T], Generic[T]):
    """An async iterator over a topic's records; also an async context manager that lets go of it at once.

    Waiting for the next item may be cancelled (a time-out, say) without losing one.
    """

    def __init__(self, reader: TopicReader, *, follow: bool) -> None:
        self._reader = reader
        self._follow = follow
        self._opened = False
        self._done = False
        self._messages: deque[Any] = deque()

    @abstractmethod
    def _take(self, message: Any) -> T | None:
        """The item that a record stands for; None when it is passed over."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """The next item; ends at the topic's end unless it follows, and when closed."""
        while not self._done:
            if self._messages:
                item = self._take(self._messages.popleft())
                if item is not None:
                    return item
                continue
            await self.start()
            self._messages.extend(await self._reader.read())
            if not self._messages and (self._reader.closed or (self._reader.at_end and not self._follow)):
                break
        await self.aclose()
        raise StopAsyncIteration

    async def start(self) -> Self:
        """Take the position now and not with the first item: nothing that is written after this is missed."""
        if not self._opened:
            await self._reader.open()
            self._opened = True
        return self

    async def aclose(self) -> None:
        """Let go of the topic."""
        self._done = True
        await self._reader.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class RunEvents(Following[AnyRunEvent]):
    """One run's events in the order of their `seq`, each once, up to its terminal event.

    Raises `EventsMissing` when the topic does not hold them without a gap. A record that is no event is
    passed over with a warning.
    """

    def __init__(
        self, reader: TopicReader, run_id: str, from_seq: int, *, follow: bool, whole_topic: bool
    ) -> None:
        """`whole_topic` False: the reader begins somewhere in the run, so its first event may be any."""
        super().__init__(reader, follow=follow)
        self.run_id = run_id
        self._next = from_seq
        self._began = False
        self._whole_topic = whole_topic
        self._unreadable = 0

    def _take(self, message: Any) -> AnyRunEvent | None:
        try:
            event = read_event(message.value())
        except ValueError as error:
            self._unreadable += 1
            _log.warning("%s holds no event of run %r: %s", _place(message), self.run_id, error)
            return None
        self._done = event.type == "terminal"
        if event.seq < self._next and not self._began:
            return None
        missing = event.seq - self._next
        excused = (not self._began and not self._whole_topic) or 0 < missing <= self._unreadable
        if missing and not excused:
            raise EventsMissing(self.run_id, self._next, event.seq, _place(message))
        self._began, self._unreadable, self._next = True, 0, event.seq + 1
        return event


class AllEvents(Following[AnyRunEvent]):
    """The events of all runs, each once; in order within a run."""

    def _take(self, message: Any) -> AnyRunEvent | None:
        try:
            return read_event(message.value())
        except ValueError as error:
            _log.warning("%s holds no event: %s", _place(message), error)
            return None


class Terminals(Following[TerminalState]):
    """The ends of all runs."""

    def _take(self, message: Any) -> TerminalState | None:
        if message.value() is None:
            return None
        try:
            return TerminalState.model_validate(orjson.loads(message.value()))
        except ValueError as error:
            _log.warning("%s holds no terminal state: %s", _place(message), error)
            return None


def _place(message: Any) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"
