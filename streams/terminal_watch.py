"""One look at `run-terminals` for everybody in a process who waits for runs to end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.terminals import TerminalState
from streams.client_errors import ClientClosedError
from streams.observing import Terminals

Ending = asyncio.Future[TerminalState]


class TerminalWatch:
    """Tells those who wait for a run how it ended, from the moment on when `start` returned."""

    def __init__(self, terminals: Terminals) -> None:
        self._terminals = terminals
        self._waiting: dict[str, set[Ending]] = {}
        self._starting: asyncio.Lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take the position, once: every end that is written after this is told."""
        async with self._starting:
            if self._task is None:
                await self._terminals.start()
                self._task = asyncio.create_task(self._watch(), name="runlane-terminal-watch")

    @contextmanager
    def expect(self, run_id: str) -> Iterator[Ending]:
        """A future of the run's end, for as long as the context lasts."""
        ending: Ending = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(ending)
        try:
            yield ending
        finally:
            ending.cancel()
            others = self._waiting.get(run_id, set())
            others.discard(ending)
            if not others:
                self._waiting.pop(run_id, None)

    async def close(self) -> None:
        """Stop watching."""
        await self._terminals.aclose()
        if self._task is not None:
            await self._task

    async def _watch(self) -> None:
        async for terminal in self._terminals:
            for ending in self._waiting.get(terminal.run_id, ()):
                if not ending.done():
                    ending.set_result(terminal)
        for endings in self._waiting.values():
            for ending in endings:
                if not ending.done():
                    ending.set_exception(ClientClosedError("the client was closed before the run ended"))
