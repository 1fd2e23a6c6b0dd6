"""Execute one dispatch: find the function, call it, and report how the run ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

from schemas.dispatches import Dispatch
from schemas.errors import ErrorCode
from schemas.events import TerminalStatus
from streams.async_functions import is_async
from streams.client import RunlaneClient
from streams.client_errors import ClientClosedError
from streams.execution.call_execution import CallExecution
from streams.execution.call_limits import CallLimits
from streams.execution.context import Result, RunContext, Services, SyncRunContext
from streams.execution.failure_text import describe_failure
from streams.execution.functions import Outcome, RunFunction, call_async, call_in_thread
from streams.execution.insistence import Pauses
from streams.execution.json_values import plain
from streams.execution.known_secrets import KnownSecrets
from streams.execution.lease_keeper import LeaseKeeper
from streams.execution.result_waits import ResultWaits
from streams.execution.run_inputs import RunSessions, read_run_params
from streams.execution.run_reporter import RunReporter, RunStopped
from streams.execution.run_signals import RunSignals
from streams.launching.session_keys import KeyRing
from streams.user_errors import UserError

_WATCHED_AFTER_S = 1.0
"""A function that is done sooner need not be stopped, and asks nothing."""
_log = logging.getLogger("runlane.executor")


class RunExecution:
    """One execution of one dispatch."""

    def __init__(
        self,
        client: RunlaneClient,
        dispatch: Dispatch,
        functions: Mapping[str, RunFunction],
        keeper: LeaseKeeper,
        limits: CallLimits,
        session_keys: KeyRing | None,
    ) -> None:
        self.dispatch = dispatch
        self._client = client
        self._functions = functions
        secrets = KnownSecrets()
        self._reporter = RunReporter(client, dispatch, secrets, self._on_over)
        self._services = Services(
            self._reporter,
            CallExecution(client, dispatch, self._reporter, keeper, limits, secrets),
            ResultWaits(client, dispatch, self._reporter),
            RunSessions(client, dispatch, self._reporter, session_keys, secrets),
            RunSignals(client, dispatch, self._reporter),
        )
        self._call: asyncio.Task[Outcome] | None = None

    async def execute(self, *, maybe_repeated: bool) -> None:
        """Execute the run; returns when the coordinator has confirmed its end, or that it is over otherwise.

        `maybe_repeated`: another execution of the dispatch may have been here, so ask first. May be
        cancelled: then nothing is promised, and the dispatch has to be delivered again.
        """
        dispatch, reporter = self.dispatch, self._reporter
        try:
            if maybe_repeated and not await reporter.resume():
                return
            started = time.monotonic()
            outcome, total_rows = await self._outcome()
            if reporter.over is None:
                await self._report(outcome, total_rows, round((time.monotonic() - started) * 1000))
            if reporter.over is not None:
                _log.info("run %s: stopped, it is over: %s", dispatch.run_id, reporter.over)
        finally:
            reporter.close()

    async def _report(self, outcome: Outcome, total_rows: Any, duration_ms: int) -> None:
        dispatch, reporter = self.dispatch, self._reporter
        wanted: TerminalStatus = "completed" if outcome.error is None else "failed"
        about = {"durationMs": duration_ms, "playName": dispatch.name}
        if outcome.error is None:
            stored = await reporter.end(wanted, result=outcome.value, totalRows=total_rows, **about)
        else:
            stored = await reporter.end(wanted, error=describe_failure(outcome.error), **about)
        # The reporter has said so when it is another end, or none.
        if reporter.over is None and stored == wanted:
            _log.info("run %s: %s %s in %d ms", dispatch.run_id, dispatch.name, stored, duration_ms)

    async def _outcome(self) -> tuple[Outcome, Any]:
        """What came of the function, and the number of rows that it names."""
        dispatch = self.dispatch
        function = self._functions.get(dispatch.name)
        if function is None:
            known = ", ".join(sorted(self._functions)) or "none"
            error = LookupError(f"this executor has no function for {dispatch.name!r}; it has: {known}")
            return Outcome(error=error), None
        try:
            params = await read_run_params(self._client, dispatch)
        except UserError as error:
            # Where in this package it was raised tells nobody anything.
            return Outcome(error=error.with_traceback(None)), None
        watching = asyncio.create_task(self._watch_end())
        try:
            return await self._outcome_of(function, params)
        finally:
            watching.cancel()

    async def _outcome_of(self, function: RunFunction, params: Any) -> tuple[Outcome, Any]:
        dispatch, reporter = self.dispatch, self._reporter
        context: RunContext | SyncRunContext
        if is_async(function):
            context = RunContext(dispatch, params, self._services)
            self._call = asyncio.create_task(call_async(function, context))
        else:
            context = SyncRunContext(dispatch, params, self._services, asyncio.get_running_loop())
            self._call = asyncio.create_task(call_in_thread(function, context, f"run {dispatch.run_id}"))
        try:
            outcome = await self._call
        except asyncio.CancelledError:
            if reporter.over is None:
                raise
            outcome = Outcome(error=RunStopped(reporter.over))
        value, total_rows = outcome.value, context.total_rows
        if isinstance(value, Result):
            value, total_rows = value.value, value.total_rows
        try:
            return Outcome(plain(value), outcome.error), total_rows
        except Exception as error:
            # A model with a field of a type that pydantic cannot write.
            return Outcome(error=error), None

    async def _watch_end(self) -> None:
        """Learn of the run's end while the function makes no reports."""
        run_id, pauses = self.dispatch.run_id, Pauses()
        await asyncio.sleep(_WATCHED_AFTER_S)
        while True:
            try:
                await self._client.wait_terminal(run_id)
                self._reporter.is_over(ErrorCode.RUN_ENDED)
                return
            except ClientClosedError:
                return
            except Exception as error:
                _log.warning("run %s: cannot watch for its end, trying again: %s", run_id, error)
                await pauses.take()

    def _on_over(self, code: str) -> None:
        # A plain function cannot be interrupted: its next report raises, and its slot stays taken until then.
        self._services.calls.stop()
        if self._call is not None and is_async(self._functions[self.dispatch.name]):
            self._call.cancel()
