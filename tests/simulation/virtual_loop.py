"""An event loop with virtual time, and simulated threads: everything runs in one thread, in an order that repeats.

Time stands still while code runs, and jumps to the next timer when all code waits. What the code under test gives
to an executor runs in a greenlet, which can be suspended at any call that it makes: so other tasks and threads run
in between, as they would with real threads, but where a seed decides.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from asyncio import base_events
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil
from typing import Any

from greenlet import getcurrent, greenlet

_TICKS = 2**20
"""Per second."""


_MAX_STEPS = 15_000
_FOR_GOOD_S = 1e9


class StandstillError(Exception):
    """Nothing will ever happen again, or too much at the same time."""


class SimulatedThread:
    """A piece of work that can be suspended and killed."""

    def __init__(self, loop: VirtualLoop, work: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        self._loop = loop
        self._work = work
        self._future = future
        self._greenlet = greenlet(self._run, loop.hub)
        self._greenlet.gr_context = contextvars.copy_context()
        self._wakening: asyncio.TimerHandle | None = None

    def resume(self) -> None:
        """Run until it is suspended or done."""
        self._greenlet.switch()

    def suspend(self, seconds: float) -> None:
        """Let time pass; called by the work itself."""
        self._wakening = self._loop.call_later(seconds, self.resume)
        self._loop.hub.switch()

    def kill(self, error: BaseException) -> None:
        """Raise an error in it where it is suspended; `error` must be no `Exception`, so that nobody handles it."""
        if self._wakening is not None:
            self._wakening.cancel()
        if self._greenlet and not self._greenlet.dead:
            self._greenlet.throw(error)

    def _run(self) -> None:
        try:
            result = self._work()
        except Exception as error:
            if not self._future.done():
                self._future.set_exception(error)
        except BaseException:
            self._future.cancel()
        else:
            if not self._future.done():
                self._future.set_result(result)
        self._loop.threads.pop(self._greenlet, None)


class VirtualLoop(base_events.BaseEventLoop):
    """The event loop. `start_delay()` is asked how long a thread's work waits before it begins."""

    def __init__(self, start_delay: Callable[[], float]) -> None:
        super().__init__()
        self.now = 0.0
        self.hub = getcurrent()
        self.threads: dict[greenlet, SimulatedThread] = {}
        self.failures: list[str] = []
        """What tasks and callbacks raised and nobody handled."""
        self.steps = 0
        """Rounds of callbacks that have run."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()
        self._start_delay = start_delay
        self.set_exception_handler(self._failed)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self.now

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        """As every event loop, in the order of calls when times are the same.

        Times are multiples of a tick: sums of them are exact, so no wait ends too early.
        """
        timer = asyncio.TimerHandle(ceil(when * _TICKS) / _TICKS, callback, args, self, context)
        heappush(self._timers, (timer.when(), next(self._numbers), timer))
        return timer

    def current_thread(self) -> SimulatedThread | None:
        """The simulated thread that runs; None in the event loop."""
        return self.threads.get(getcurrent())

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run in a simulated thread, whatever the executor."""
        future: asyncio.Future[Any] = self.create_future()
        thread = SimulatedThread(self, lambda: func(*args), future)
        self.threads[thread._greenlet] = thread
        self.on_thread(thread)
        self.call_later(self._start_delay(), self._start, thread)
        return future

    def count_call(self) -> None:
        """A call counts as a round does: a thread that is busy without end never comes back to the loop."""
        self.steps += 1
        thread = self.current_thread()
        while self.steps > _MAX_STEPS and thread is not None:
            thread.suspend(_FOR_GOOD_S)

    def on_thread(self, thread: SimulatedThread) -> None:
        """A thread was made; for who wants to kill it."""

    def _start(self, thread: SimulatedThread) -> None:
        if not thread._future.cancelled():
            thread.resume()
        else:
            self.threads.pop(thread._greenlet, None)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context['message']}: {error!r}")

    def _run_once(self) -> None:
        """Run what is ready; when nothing is, jump to the next timer."""
        self.steps += 1
        if self.steps > _MAX_STEPS:
            raise StandstillError(f"busy without end: {_MAX_STEPS} rounds of the event loop and calls")
        ready, timers = self._ready, self._timers  # type: ignore[attr-defined]
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready:
            if not timers:
                raise StandstillError("nothing will ever happen again")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            ready.append(heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""

    def _write_to_self(self) -> None:
        """Nobody waits in another thread."""
