"""What a function that executes a run gets: the run's parameters, and ways to say how it goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from schemas.call_commands import OnFailure
from schemas.dispatches import Dispatch
from schemas.signal_results import SignalResult
from streams.execution.call_execution import CallExecution
from streams.execution.call_terms import DEFAULT_LEASE_S, CallTerms
from streams.execution.result_waits import ResultWaits
from streams.execution.run_inputs import RunSessions
from streams.execution.run_reporter import RunReporter
from streams.execution.run_signals import RunSignals
from streams.run_calls import log_event, progress_event, status_event

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """A run's result together with how many rows it is about."""

    value: Any
    """Any JSON."""
    total_rows: int | None = None


@dataclass(frozen=True)
class Services:
    """What the contexts of one execution work with."""

    reporter: RunReporter
    calls: CallExecution
    waits: ResultWaits
    sessions: RunSessions
    signals: RunSignals


class _Context:
    """What both kinds of context have."""

    def __init__(self, dispatch: Dispatch, params: Any, services: Services) -> None:
        self.dispatch = dispatch
        """The order to execute the run, as it came."""
        self.total_rows: int | None = None
        """Set it to have the run's end say how many rows the result is about."""
        self._params = params
        self._reporter = services.reporter
        self._calls = services.calls
        self._waits = services.waits
        self._sessions = services.sessions
        self._signals = services.signals

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
        """The parameters with which it was submitted; any JSON. Those in the object store have been read."""
        return self._params

    @property
    def params_ref(self) -> Any:
        """The reference with which it was submitted instead of parameters; None when there is none.

        When a launch made it, `params` holds what it stands for; else it is for this function to read.
        """
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
    end waits for all of them. When the run is over (cancelled, say), the function is cancelled, also while it
    makes no reports.
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

    async def call(
        self,
        tool_id: str,
        input: Any,
        execute: Callable[[Any], Any],
        *,
        on_failure: OnFailure = "keep",
        lease_s: float = DEFAULT_LEASE_S,
        input_hash: str | None = None,
        bucket: str | None = None,
        cost: int = 1,
    ) -> Any:
        """Execute `execute(input)` once within the run, and return its result, also when it was executed before.

        A call is named by `tool_id` and by the hash of the input's canonical JSON, unless `input_hash` is given.
        Whoever is the first to claim it executes it, under a lease that is renewed from a thread of its own; others
        wait for the result. When the executor dies, the lease runs out after `lease_s` (1 to 3600) and another
        executor executes the call. `execute` is async, or plain and gets a thread. It should make no reports: they
        would be missing when the run is executed again and the result is there already.

        The result is what JSON makes of it, also the first time. An exception, and a result that is no JSON, fail the
        call: raises `CallFailed`. With `on_failure` `keep` it fails for good, with `release` the next call of it
        executes it again. Raises `LeaseLost` when another executor has taken the call over meanwhile.

        `bucket` names a rate bucket with stored rules: who executes the call waits for `cost` permits of it first, and
        a result that is there already costs nothing. Without a permit nothing is executed and the call is free again;
        raises as `RateLimiter.permit` does.

        Raises `ValueError` and `TypeError` for other values of `on_failure` and `lease_s`.
        """
        return await self._calls.call(
            tool_id,
            input,
            execute,
            CallTerms(on_failure, lease_s, input_hash, bucket, cost),
        )

    async def await_child(self, event_key: str, timeout_s: float | None = None) -> Any:
        """What was stored as the result of a child (`child.terminal.set` of this run): its data; waits for it.

        Raises `TimeoutError` when it has not come within `timeout_s`; None waits for as long as the run goes on.
        """
        return await self._waits.data(event_key, timeout_s)

    async def wait_for(self, event_key: str, timeout_s: float | None = None) -> Any:
        """What the outside tells this run by a signal of this key or type: its payload; waits for it.

        Raises `TimeoutError` as `await_child` does.
        """
        return await self._waits.data(event_key, timeout_s)

    async def signal(
        self,
        run_id: str,
        event_key: str | None = None,
        *,
        signal_type: str | None = None,
        payload: Any = None,
    ) -> SignalResult:
        """Tell another run that something happened: what waits there by `wait_for` gets the payload (any JSON).

        Executed again, the function sends no signal twice. Raises `CommandRefused` (`RUN_ENDED`) when that run is
        over.
        """
        return await self._signals.send(run_id, event_key, signal_type, payload)

    async def sessions(self) -> dict[str, Any]:
        """The run's database sessions by name, decrypted by the executor's `session_keys`.

        What in them looks like a secret is hidden from this execution's events, its end, and the errors of its
        calls. Raises `SessionKeyError` without the right keys, and `CommandRefused` (`SESSIONS_NOT_FOUND`) when the
        run has none, or they have expired.
        """
        return await self._sessions.decrypted()


class SyncRunContext(_Context):
    """The context of a plain function, which is executed in a thread of its own.

    The methods are those of `RunContext` without `await`. When the run is over, the next call raises `RunStopped`; a
    function that makes no calls for long looks at `stopped`.
    """

    def __init__(
        self, dispatch: Dispatch, params: Any, services: Services, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(dispatch, params, services)
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

    def call(
        self,
        tool_id: str,
        input: Any,
        execute: Callable[[Any], Any],
        *,
        on_failure: OnFailure = "keep",
        lease_s: float = DEFAULT_LEASE_S,
        input_hash: str | None = None,
        bucket: str | None = None,
        cost: int = 1,
    ) -> Any:
        """See `RunContext.call`; `execute` is a plain function, executed in this thread."""
        return self._calls.call_here(
            tool_id,
            input,
            execute,
            CallTerms(on_failure, lease_s, input_hash, bucket, cost),
            self._loop,
        )

    def await_child(self, event_key: str, timeout_s: float | None = None) -> Any:
        """See `RunContext.await_child`."""
        return self._run(self._waits.data(event_key, timeout_s))

    def wait_for(self, event_key: str, timeout_s: float | None = None) -> Any:
        """See `RunContext.wait_for`."""
        return self._run(self._waits.data(event_key, timeout_s))

    def signal(
        self,
        run_id: str,
        event_key: str | None = None,
        *,
        signal_type: str | None = None,
        payload: Any = None,
    ) -> SignalResult:
        """See `RunContext.signal`."""
        return self._run(self._signals.send(run_id, event_key, signal_type, payload))

    def sessions(self) -> dict[str, Any]:
        """See `RunContext.sessions`."""
        return self._run(self._sessions.decrypted())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
