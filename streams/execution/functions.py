"""Call a function that executes a run, async or plain, and catch what comes of it."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

RunFunction = Callable[[Any], Any]
"""Takes the context; returns the run's result, or a coroutine that does."""


@dataclass(frozen=True)
class Outcome:
    """What a function returned, or what it raised."""

    value: Any = None
    error: BaseException | None = None


def require_one_argument(function: RunFunction) -> None:
    """Raises `TypeError` unless the function can be called with the context as its only argument."""
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise TypeError(f"{function!r} must take one argument, the run's context: {error}") from None


async def call_async(function: RunFunction, context: Any) -> Outcome:
    """The outcome of an async function; being cancelled is passed on."""
    try:
        return Outcome(value=await function(context))
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Outcome(error=error)
    except BaseException as error:
        return Outcome(error=error)


async def call_in_thread(function: RunFunction, context: Any, name: str) -> Outcome:
    """The outcome of a plain function; cancelling leaves it to itself.

    Its thread is a daemon, so that a function that never returns cannot keep the process from ending.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Outcome] = loop.create_future()

    def settle(outcome: Outcome) -> None:
        if not done.done():
            done.set_result(outcome)

    def work() -> None:
        try:
            outcome = Outcome(value=function(context))
        except BaseException as error:
            outcome = Outcome(error=error)
        # A closed loop: the executor has been stopped, and nobody waits any more.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=work, name=name, daemon=True).start()
    return await done
