"""Runs one lane in the event loop: opens it, feeds it batches, opens it again when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from streams.batch import BatchCounts
from streams.inbox import Chunk, Inbox
from streams.lane import Lane, LaneHaltedError, RestoreProgress
from streams.ports import CommandRecord, FencedError, LaneLostError
from streams.timers import NEVER

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_FENCED_PAUSE_S = 1.0
_TIMER_GRACE_S = 1.0
_LONGEST_SLEEP_S = 60.0


class LaneState(StrEnum):
    """Where a lane is."""

    CLOSED = "closed"
    OPENING = "opening"
    SERVING = "serving"
    LOST = "lost"
    HALTED = "halted"


class Seeker(Protocol):
    """Moves the consumer."""

    async def seek(self, partition: int, offsets: Mapping[str, int]) -> Mapping[str, int]:
        """Read the partition of these topics from these offsets on; topic -> epoch of what was sought."""


@dataclass(frozen=True)
class BatchLimits:
    """How much one transaction takes."""

    commands: int
    bytes: int


class LaneRunner:
    """One lane of a worker. All methods belong to the event loop."""

    def __init__(
        self,
        lane: Lane,
        topics: tuple[str, ...],
        seeker: Seeker,
        limits: BatchLimits,
        *,
        commits: asyncio.Semaphore,
        commit_threads: Executor,
        open_threads: Executor,
        on_progress: Callable[[int, BatchCounts, float], None],
        on_state: Callable[[int, LaneState, str], None],
    ) -> None:
        """`on_progress(partition, counts, seconds)` is called after each commit, `on_state` on each change."""
        self.lane = lane
        self.partition = lane.partition
        self.inbox = Inbox()
        self.state = LaneState.CLOSED
        self.reason = ""
        """Why the lane does not serve, for people."""
        self.restore: RestoreProgress | None = None
        self.is_busy = False
        self._topics = topics
        self._seeker = seeker
        self._limits = limits
        self._commits = commits
        self._commit_threads = commit_threads
        self._open_threads = open_threads
        self._on_progress = on_progress
        self._on_state = on_state
        self._wake = asyncio.Event()
        self._stopping = True
        self._is_open = False
        self._task: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._switching = asyncio.Lock()
        """Held while the lane opens or closes."""
        self._seek_again: set[str] = set()
        self._expired: set[str] = set()
        self._timers_from = 0.0

    @property
    def is_stopping(self) -> bool:
        """The lane was told to stop; read from other threads."""
        return self._stopping

    @property
    def is_open(self) -> bool:
        """The lane has its state and may hold the partition's producers."""
        return self._is_open

    def start(self) -> None:
        """Serve the partition; a lane that is still open goes on where it was."""
        self._stopping = False
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Finish the batch in flight and drop what waits. The lane stays open, in case it comes back."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None
        self.inbox.clear()

    async def release(self) -> None:
        """Close the stopped lane, its store and its producers, unless it is started again meanwhile."""
        async with self._switching:
            if self._task is not None:
                return
            self._is_open = False
            await self._in_thread(self._open_threads, self.lane.close)
        if self._task is None:
            self._set_state(LaneState.CLOSED)

    def put(self, chunk: Chunk) -> None:
        """Take a fetched chunk."""
        if not self._stopping:
            self.inbox.put(chunk)
            self._wake.set()

    def seek_again(self, topic: str) -> None:
        """Something that was handed out did not arrive: read again from the watermark."""
        self._seek_again.add(topic)
        self._wake.set()

    def out_of_range(self, topic: str) -> None:
        """The log does not reach down to the watermark any more."""
        if self.state is LaneState.SERVING:
            self._expired.add(topic)
            self._wake.set()

    async def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self._stopping:
            try:
                if not self._is_open:
                    await self._open()
                if self._stopping:
                    return
                self.inbox.clear()
                if not await self._seek(set(self._topics)):
                    await asyncio.sleep(_FIRST_PAUSE_S)
                    continue
                pause = _FIRST_PAUSE_S
                self._timers_from = _now() + _TIMER_GRACE_S
                self._set_state(LaneState.SERVING)
                await self._serve()
            except LaneHaltedError as error:
                self._is_open = False
                _log.critical("lane %d halted: %s", self.partition, error)
                self._set_state(LaneState.HALTED, str(error))
                await self._in_thread(self._open_threads, self.lane.close)
                return
            except LaneLostError as error:
                self._is_open = False
                if self._stopping:
                    return
                _log.warning("lane %d lost, opening it again: %s", self.partition, error)
                self._set_state(LaneState.LOST, str(error))
                if isinstance(error, FencedError):
                    # Most likely the group gave the partition away; to fence back at once would hurt the new owner.
                    pause = max(pause, _FENCED_PAUSE_S)
                pause = await self._pause(pause)
            except Exception as error:
                self._is_open = False
                _log.exception("lane %d failed, opening it again", self.partition)
                self._set_state(LaneState.LOST, f"{type(error).__name__}: {error}")
                pause = await self._pause(pause)

    async def _pause(self, seconds: float) -> float:
        """Wait, unless told to stop; returns the next pause."""
        end = _now() + seconds
        while not self._stopping and (left := end - _now()) > 0:
            await self._sleep(left)
        return min(seconds * 2, _LONGEST_PAUSE_S)

    async def _open(self) -> None:
        self.restore = None
        self._set_state(LaneState.OPENING)
        if self._opening is None or self._opening.done():
            # An opening that an earlier assignment began is taken up, not begun a second time.
            self._opening = asyncio.ensure_future(self._open_lane())
            # Told to stop, nobody asks how it ended.
            self._opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        while not self._opening.done():
            self._wake.clear()
            if self._stopping:
                # It cannot be interrupted; the revocation must not wait for it.
                return
            woken: asyncio.Future[Any] = asyncio.ensure_future(self._wake.wait())
            waited: set[asyncio.Future[Any]] = {self._opening, woken}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
            woken.cancel()
        self._opening.result()
        self._is_open = True

    async def _open_lane(self) -> None:
        async with self._switching:
            await self._in_thread(self._open_threads, self.lane.open)

    async def _seek(self, topics: set[str]) -> bool:
        watermarks = {topic: self.lane.watermark(topic) for topic in topics}
        epochs = await self._seeker.seek(self.partition, {t: w + 1 for t, w in watermarks.items()})
        self.inbox.restart({topic: (watermarks[topic], epoch) for topic, epoch in epochs.items()})
        return len(epochs) == len(topics)

    async def _serve(self) -> None:
        while not self._stopping:
            await self._until_work()
            if self._stopping:
                return
            if self._expired:
                expired, self._expired = self._expired, set()
                for topic in sorted(expired):
                    await self._in_thread(self._open_threads, self._skip_expired, topic)
                if not await self._seek(expired):
                    return
                continue
            again, self._seek_again = self._seek_again, set()
            commands, gaps = self.inbox.take(self._limits.commands, self._limits.bytes)
            await self._process(commands)
            if (again := again | gaps) and not self._stopping:
                _log.info("lane %d reads %s again from its watermark", self.partition, sorted(again))
                if not await self._seek(again):
                    return

    async def _process(self, commands: list[CommandRecord]) -> None:
        self.is_busy = True
        try:
            async with self._commits:
                if self._stopping:
                    return
                started = _now()
                timers_until = None if self.inbox.pending else self._timers_until(started)
                counts = await self._in_thread(
                    self._commit_threads, self.lane.process, commands, timers_until
                )
        finally:
            self.is_busy = False
        self._on_progress(self.partition, counts, _now() - started)

    def _timers_until(self, now: float) -> int | None:
        """Up to when timers may fire by the worker's clock: only when no earlier commands may be waiting."""
        if now < self._timers_from:
            return None
        wall = self.lane.wall_clock()
        return wall if wall >= self.lane.next_due else None

    async def _until_work(self) -> None:
        while not (self.inbox.pending or self._seek_again or self._expired or self._stopping):
            now = _now()
            if self._timers_until(now) is not None:
                return
            due = self.lane.next_due
            seconds = _LONGEST_SLEEP_S if due == NEVER else (due - self.lane.wall_clock()) / 1000
            await self._sleep(max(seconds, self._timers_from - now, 0.001))

    async def _sleep(self, seconds: float) -> None:
        self._wake.clear()
        # Without a task of its own for the wait, as `wait_for` makes one: it comes once for each batch.
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds, _LONGEST_SLEEP_S)):
                await self._wake.wait()

    def _skip_expired(self, topic: str) -> None:
        first, end = self.lane.command_range(topic)
        watermark = self.lane.watermark(topic)
        if watermark + 1 > end:
            raise LaneLostError(
                f"the watermark {watermark} of {topic} is past the topic's end {end}: was the topic made anew?"
            )
        if first > watermark + 1:
            _log.critical(
                "lane %d: retention deleted the commands %d..%d of %s before they were processed",
                self.partition,
                watermark + 1,
                first - 1,
                topic,
            )
            self.lane.skip_expired(topic, first)

    def _in_thread(self, pool: Executor, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().run_in_executor(pool, work, *args)

    def _set_state(self, state: LaneState, reason: str = "") -> None:
        self.state, self.reason = state, reason
        self._on_state(self.partition, state, reason)


def _now() -> float:
    """The event loop's clock, in seconds."""
    return asyncio.get_running_loop().time()
