"""What the demo sees while it runs: it follows the topics, as any observer could."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from schemas.events import LogEvent, TerminalEvent
from schemas.topics import RUN_COMMANDS
from streams.child_process import WorkerChild
from streams.client import RunlaneClient
from streams.messaging.topic_reader import TopicReader

_LINES = 6
_HEALTH_EVERY_S = 0.5
_RATE_WINDOW_S = 2.0


class Meter:
    """A count, and how fast it grew of late."""

    def __init__(self) -> None:
        self.count = 0
        self._marks: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    def add(self, number: int) -> None:
        """Count so many more, now."""
        self.count += number
        self._marks.append((time.monotonic(), self.count))

    def per_second(self) -> float:
        """Over the last two seconds."""
        since = time.monotonic() - _RATE_WINDOW_S
        while len(self._marks) > 1 and self._marks[1][0] <= since:
            self._marks.popleft()
        first_at, first = self._marks[0]
        return (self.count - first) / max(_RATE_WINDOW_S, time.monotonic() - first_at)


@dataclass
class Sight:
    """What has been seen so far."""

    runs: int
    """How many there will be."""
    submitted: int = 0
    """Runs whose submit was answered."""
    running: set[str] = field(default_factory=set)
    ended: Counter[str] = field(default_factory=Counter)
    """Runs by how they ended."""
    commands: Meter = field(default_factory=Meter)
    events: Meter = field(default_factory=Meter)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_LINES))
    """The newest log lines, and how runs failed."""
    lanes: list[dict[str, Any]] = field(default_factory=list)
    """The lanes of the worker's health page; empty while it does not answer."""
    news: str = ""
    """What was done to the worker."""

    @property
    def done(self) -> int:
        """Runs that have ended."""
        return self.ended.total()


class Observer:
    """Keeps a `Sight` up to date; `on_end` is called when a run has ended."""

    def __init__(
        self, client: RunlaneClient, worker: WorkerChild, sight: Sight, on_end: Callable[[], None]
    ) -> None:
        self._client = client
        self._worker = worker
        self._sight = sight
        self._on_end = on_end

    def watches(self) -> list[Coroutine[Any, Any, None]]:
        """What has to run, each until it is cancelled. They raise what reading the topics raises."""
        return [self._watch_events(), self._watch_commands(), self._watch_lanes()]

    async def _watch_events(self) -> None:
        sight = self._sight
        async with self._client.follow_events() as events:
            async for event in events:
                sight.events.add(1)
                if isinstance(event, LogEvent):
                    sight.lines.append(f"{event.run_id}  {event.line}")
                if not isinstance(event, TerminalEvent):
                    sight.running.add(event.run_id)
                    continue
                sight.running.discard(event.run_id)
                sight.ended[event.status] += 1
                if event.error is not None:
                    sight.lines.append(f"{event.run_id}  {event.status}: {event.error.splitlines()[0]}")
                self._on_end()

    async def _watch_commands(self) -> None:
        settings = self._client.settings
        topic = settings.name(RUN_COMMANDS.name)
        reader = TopicReader(settings, topic, range(settings.partitions), "beginning")
        await reader.open()
        try:
            while True:
                self._sight.commands.add(len(await reader.read()))
        finally:
            await reader.close()

    async def _watch_lanes(self) -> None:
        while True:
            with suppress(OSError):
                _, self._sight.lanes = await asyncio.to_thread(self._worker.health)
            await asyncio.sleep(_HEALTH_EVERY_S)
