"""The executor kit: functions that execute runs.

    app = Executor()

    @app.run("import-orders")
    async def import_orders(context: RunContext) -> dict[str, int]:
        await context.log(f"importing {context.params['day']}")
        ...
        return {"orders": 17}

`runlane executor module:app` executes the runs that are submitted under these names. What a function returns
is the run's result; an exception is the run's failure. A function may be executed twice for one run (its
executor died before the end was confirmed), but its reports and the run's end happen once, provided that it
makes the same reports in the same order again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from streams.execution.call_execution import CallFailed, LeaseLost
from streams.execution.context import Result, RunContext, SyncRunContext
from streams.execution.functions import RunFunction, require_one_argument
from streams.execution.run_reporter import RunStopped
from streams.execution.runner import ExecutorRunner
from streams.launching.session_keys import KeyRing
from streams.settings import Settings

__all__ = ["CallFailed", "Executor", "LeaseLost", "Result", "RunContext", "RunStopped", "SyncRunContext"]

F = TypeVar("F", bound=RunFunction)


class Executor:
    """Functions by run name."""

    def __init__(self, *, ignore_unknown: bool = False, session_keys: KeyRing | None = None) -> None:
        """`ignore_unknown`: runs of other names are left to executors of other groups; else they fail.

        `session_keys` decrypt the database sessions of runs, for `context.sessions()`.
        """
        self.ignore_unknown = ignore_unknown
        self.session_keys = session_keys
        self._functions: dict[str, RunFunction] = {}

    @property
    def names(self) -> list[str]:
        """The run names that have a function."""
        return sorted(self._functions)

    def run(self, name: str) -> Callable[[F], F]:
        """Decorate the function that executes the runs of this name.

        It takes the context (`RunContext` for an async function, `SyncRunContext` for a plain one, which
        gets a thread) and returns the run's result: any JSON, a pydantic model, or `Result` to say the
        number of rows too. Raises `ValueError` for a name that is taken, `TypeError` for a function of
        other arguments.
        """

        def register(function: F) -> F:
            if name in self._functions:
                raise ValueError(f"the run name {name!r} has a function already: {self._functions[name]!r}")
            require_one_argument(function)
            self._functions[name] = function
            return function

        return register

    def runner(
        self,
        settings: Settings,
        *,
        concurrency: int | None = None,
        group: str | None = None,
        ignore_unknown: bool | None = None,
    ) -> ExecutorRunner:
        """What executes runs: `async with app.runner(settings): ...`. None: what the settings say.

        `concurrency` runs are executed at once; executors of one `group` share the runs.
        """
        return ExecutorRunner(
            settings,
            dict(self._functions),
            concurrency=settings.executor_concurrency if concurrency is None else concurrency,
            group=settings.executor_group if group is None else group,
            ignore_unknown=self.ignore_unknown if ignore_unknown is None else ignore_unknown,
            session_keys=self.session_keys,
        )

    async def serve(
        self,
        settings: Settings,
        stop: asyncio.Event,
        *,
        concurrency: int | None = None,
        group: str | None = None,
        ignore_unknown: bool | None = None,
    ) -> None:
        """Execute runs until `stop` is set, then finish or give back what is being executed.

        Goes on through a broker that is away; raises when it cannot go on (`UserError`: topics are missing).
        """
        runner = self.runner(settings, concurrency=concurrency, group=group, ignore_unknown=ignore_unknown)
        stopped = asyncio.create_task(stop.wait())
        serving = asyncio.create_task(_serve(runner))
        try:
            await asyncio.wait({stopped, serving}, return_when=asyncio.FIRST_COMPLETED)
            if serving.done():
                await serving
        finally:
            stopped.cancel()
            serving.cancel()
            await runner.stop(settings.shutdown_deadline_s / 2)


async def _serve(runner: ExecutorRunner) -> None:
    await runner.start()
    await runner.wait_failed()
