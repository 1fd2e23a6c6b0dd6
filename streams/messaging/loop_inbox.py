"""Hand items from a thread to an event loop, many per wake-up."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class LoopInbox(Generic[T]):
    """Items put in by any thread are handled in the event loop, in order.

    The loop is woken once for all items that arrive before it gets to run: a wake-up costs more than an item.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: Callable[[T], None]) -> None:
        self._loop = loop
        self._handle = handle
        self._items: deque[T] = deque()
        self._woken = False

    def put(self, item: T) -> None:
        """Have `item` handled by the loop; dropped when the loop is closed."""
        self._items.append(item)
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        # Cleared first: an item put from here on wakes the loop again, so none is left behind.
        self._woken = False
        while self._items:
            self._handle(self._items.popleft())
