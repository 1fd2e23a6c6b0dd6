"""When the broker was away: nothing can happen then, and that nothing happens says nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Outages:
    """Notes outages of the broker. Times are of the monotonic clock, in seconds; for any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._over: list[tuple[float, float]] = []
        self._since: float | None = None
        self._lock = threading.Lock()

    @contextmanager
    def one(self) -> Iterator[None]:
        """The broker is away while the block runs. One at a time."""
        since = self._clock()
        with self._lock:
            self._since = since
        try:
            yield
        finally:
            with self._lock:
                self._over.append((since, self._clock()))
                self._since = None

    def served_s(self, since: float, until: float) -> float:
        """For how much of this time the broker was there."""
        with self._lock:
            outages = [*self._over, *([] if self._since is None else [(self._since, until)])]
        away_s = sum(max(0.0, min(end, until) - max(begin, since)) for begin, end in outages)
        return until - since - away_s
