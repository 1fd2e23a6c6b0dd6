"""Waiting, in a run's function, for results that others store for the run (spec coordinator 3)."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from schemas.dispatches import Dispatch
from schemas.errors import ErrorCode
from streams.client import RunlaneClient
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.execution.run_reporter import RunReporter, RunStopped

_LONGEST_WAIT_S = 30.0
_PAUSE_S = 0.5
_log = logging.getLogger("runlane.executor")


class ResultWaits:
    """The waits of one execution of a run."""

    def __init__(self, client: RunlaneClient, dispatch: Dispatch, reporter: RunReporter) -> None:
        self._client = client
        self._run_id = dispatch.run_id
        self._reporter = reporter

    async def data(self, event_key: str, timeout_s: float | None) -> Any:
        """The data that is stored under a name, waiting for it.

        Raises `TimeoutError` when it is not there within `timeout_s`, `RunStopped` when the run is over.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._reporter.over is not None:
                raise RunStopped(self._reporter.over)
            left_s = _LONGEST_WAIT_S if deadline is None else max(0.0, deadline - time.monotonic())
            wait_ms = round(min(left_s, _LONGEST_WAIT_S) * 1000)
            try:
                state = await self._client.await_child(self._run_id, event_key, timeout_ms=wait_ms)
                if state is not None:
                    return state.data
                # A run that has ended answers at once, however long the wait was to be.
                if (await self._client.status(self._run_id)).ended and self._reporter.is_over(
                    ErrorCode.RUN_ENDED
                ):
                    raise RunStopped(ErrorCode.RUN_ENDED)
            except (CommandTimeout, CommandNotDelivered) as error:
                _log.warning("run %s: waiting for %r goes on: %s", self._run_id, event_key, error)
                await asyncio.sleep(_PAUSE_S)
            except CommandRefused as refusal:
                if refusal.code != ErrorCode.TOO_MANY_WAITS:
                    raise
                await asyncio.sleep(_PAUSE_S)
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"nothing came for {event_key!r} within {timeout_s:g} s")
