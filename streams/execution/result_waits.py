"""Waiting, in a run's function, for results that others store for the run (spec coordinator 3)."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from schemas.dispatches import Dispatch
from schemas.errors import ErrorCode
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.execution.insistence import Pauses, insist
from streams.execution.run_reporter import RunReporter, RunStopped

_LONGEST_WAIT_S = 30.0


class ResultWaits:
    """The waits of one execution of a run."""

    def __init__(self, client: RunlaneClient, dispatch: Dispatch, reporter: RunReporter) -> None:
        self._client = client
        self._run_id = dispatch.run_id
        self._identity: dict[str, Any] = {
            "instance_id": dispatch.instance_id,
            "attempt": dispatch.attempt,
        }
        self._reporter = reporter

    async def data(self, event_key: str, timeout_s: float | None) -> Any:
        """The data that is stored under a name, waiting for it.

        Raises `TimeoutError` when it is not there within `timeout_s`, `RunStopped` when the run is over.
        """
        client, run_id = self._client, self._run_id
        what, answer_s = f"run {run_id}: the wait for {event_key!r}", client.settings.command_timeout_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pauses = Pauses()
        while True:
            if self._reporter.over is not None:
                raise RunStopped(self._reporter.over)
            left_s = _LONGEST_WAIT_S if deadline is None else max(0.0, deadline - time.monotonic())
            wait_ms = round(min(left_s, _LONGEST_WAIT_S) * 1000)
            try:
                state = await insist(
                    partial(client.await_child, run_id, event_key, timeout_ms=wait_ms, **self._identity),
                    what,
                    timeout_s=answer_s + wait_ms / 1000,
                )
                if state is not None:
                    return state.data
                # A run that has ended answers at once, however long the wait was to be.
                status = await insist(partial(client.status, run_id), what, timeout_s=answer_s)
                if status.ended and self._reporter.is_over(ErrorCode.RUN_ENDED):
                    raise RunStopped(ErrorCode.RUN_ENDED)
            except CommandRefused as refusal:
                if self._reporter.is_over(refusal.code):
                    raise RunStopped(refusal.code) from None
                if refusal.code != ErrorCode.TOO_MANY_WAITS:
                    raise
                await pauses.take()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"nothing came for {event_key!r} within {timeout_s:g} s")
