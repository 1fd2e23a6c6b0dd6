"""Do something with a client from a command: open it, let Ctrl-C end it cleanly, close it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import typer
from rich.markup import escape

from streams.broker.local_broker import resolve_brokers
from streams.cli.session import Session
from streams.client import RunlaneClient

T = TypeVar("T")

INTERRUPTED = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C ended."""

_GOODBYE_S = 0.5
_SAY_AFTER_S = 2.0


def with_client(
    session: Session, work: Callable[[RunlaneClient], Awaitable[T]], patience_s: float | None = None
) -> T:
    """What `work` makes of an open client; Ctrl-C ends the command with `INTERRUPTED`.

    Connecting may take `patience_s` (default: the setting `command_timeout_s`); what takes long is said.
    Raises what `work` raises, and `UserError` when there is no broker or its topics are not usable.
    """
    quiet_kafka(session)
    try:
        return asyncio.run(_work(session, work, patience_s))
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


def interruptible(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine that Ctrl-C and SIGTERM cancel; the command then ends with `INTERRUPTED`."""

    async def watched() -> T:
        task = asyncio.current_task()
        assert task is not None
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signal_number, task.cancel)
        return await work()

    try:
        return asyncio.run(watched())
    except asyncio.CancelledError:
        raise typer.Exit(INTERRUPTED) from None


def quiet_kafka(session: Session) -> None:
    """Keep what the Kafka client logs off the screen: the errors of the commands say it better."""
    if not session.debug:
        for name in ("runlane.kafka", "streams.topic_admin"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


async def _work(
    session: Session, work: Callable[[RunlaneClient], Awaitable[T]], patience_s: float | None
) -> T:
    task = asyncio.current_task()
    assert task is not None
    is_open = False

    def interrupted() -> None:
        if not is_open:
            # Connecting runs in a thread that cannot be cancelled, and there is nothing to tidy up yet.
            os._exit(INTERRUPTED)
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted)
    client = RunlaneClient(session.settings)
    saying = asyncio.create_task(_say_that_it_waits(session))
    try:
        await client.open(patience_s)
        is_open = True
        saying.cancel()
        return await work(client)
    except asyncio.CancelledError:
        # Whoever pressed Ctrl-C does not wait for a broker that is away.
        await client.sender.close(_GOODBYE_S)
        raise
    finally:
        saying.cancel()
        await client.close()


async def _say_that_it_waits(session: Session) -> None:
    await asyncio.sleep(_SAY_AFTER_S)
    session.output.messages.print(f"waiting for Kafka at {escape(resolve_brokers(session.settings))}")
