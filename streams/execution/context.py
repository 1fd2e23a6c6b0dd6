"""What a function that executes a run gets: the run's parameters, and ways to say how it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.dispatches import Dispatch
from streams.execution.run_reporter import RunReporter
from streams.run_calls import log_event, progress_event, status_event


@dataclass(frozen=True)
class Result:
    """A run's result together with how many rows it is about."""

    value: Any
    """Any JSON."""
    total_rows: int | None = None


class _Context:
    """What both kinds of context have."""

    def __init__(self, dispatch: Dispatch, reporter: RunReporter) -> None:
        self.dispatch = dispatch
        """The order to execute the run, as it came."""
        self.total_rows: int | None = None
        """Set it to have the run's end say how many rows the result is about."""
        self._reporter = reporter

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.dispatch.run_id

    @property
    def name(self) -> str:
        """The name under which the run was submitted."""
        return self.dispatch.name

    @property
    def params(self) -> Any:
        """The parameters with which it was submitted; any JSON."""
        return self.dispatch.params

    @property
    def params_ref(self) -> Any:
        """A reference to parameters that were too large to be sent; None when `params` holds them."""
        return self.dispatch.params_ref

    @property
    def attempt(self) -> int:
        """1 for the first attempt at this run."""
        return self.dispatch.attempt

    @property
    def stopped(self) -> bool:
        """Whether the run is over without this function: cancelled, or taken over by another attempt."""
        return self._reporter.over is not None


class RunContext(_Context):
    """The context of an async function.

    Reports are sent in the order of the calls, and a call returns when its report is on its way: the run's
    end waits for all of them. When the coordinator says that the run is over, the function is cancelled.
    """

    async def log(self, line: str) -> None:
        """Add a line to the run's log. Raises `ValueError` when it is too large."""
        await self._reporter.event(log_event(line))

    async def progress(
        self,
        status: str,
        *,
        logs: Sequence[str] | None = None,
        active_node_id: str | None = None,
        active_artifact_table_namespace: str | None = None,
        updated_at: float | None = None,
    ) -> None:
        """Say how far the run is."""
        await self._reporter.event(
            progress_event(status, logs, active_node_id, active_artifact_table_namespace, updated_at)
        )

    async def set_status(self, status: str, *, logs: Sequence[str] | None = None) -> None:
        """Say in words what the run does; this does not end it."""
        await self._reporter.event(status_event(status, logs))


class SyncRunContext(_Context):
    """The context of a plain function, which is executed in a thread of its own.

    The methods are those of `RunContext` without `await`. When the coordinator says that the run is over, the
    next call raises `RunStopped`; a function that makes no calls for long looks at `stopped`.
    """

    def __init__(self, dispatch: Dispatch, reporter: RunReporter, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(dispatch, reporter)
        self._loop = loop

    def log(self, line: str) -> None:
        """Add a line to the run's log. Raises `ValueError` when it is too large."""
        self._run(self._reporter.event(log_event(line)))

    def progress(
        self,
        status: str,
        *,
        logs: Sequence[str] | None = None,
        active_node_id: str | None = None,
        active_artifact_table_namespace: str | None = None,
        updated_at: float | None = None,
    ) -> None:
        """Say how far the run is."""
        self._run(
            self._reporter.event(
                progress_event(status, logs, active_node_id, active_artifact_table_namespace, updated_at)
            )
        )

    def set_status(self, status: str, *, logs: Sequence[str] | None = None) -> None:
        """Say in words what the run does; this does not end it."""
        self._run(self._reporter.event(status_event(status, logs)))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()
