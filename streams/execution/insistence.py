"""Send a command until it is answered: how reports are repeated (spec coordinator 9)."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable
from typing import TypeVar

from schemas.errors import ErrorCode
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout

T = TypeVar("T")

PAUSES_S = (0.2, 0.5, 1.5)
"""Before something is tried again; where it is tried without end, the last one again and again."""

_LONGEST_WAIT_S = 600.0
_log = logging.getLogger("runlane.executor")


class Pauses:
    """The pauses of one thing that is tried again."""

    def __init__(self) -> None:
        self.taken = 0

    @property
    def are_over(self) -> bool:
        """Whether as many were taken as there are different ones."""
        return self.taken >= len(PAUSES_S)

    async def take(self) -> None:
        """Wait for the next pause."""
        pause_s = PAUSES_S[min(self.taken, len(PAUSES_S) - 1)]
        self.taken += 1
        await asyncio.sleep(pause_s)


async def insist(
    send: Callable[..., Awaitable[T]],
    what: str,
    *,
    timeout_s: float,
    command_id: str | None = None,
) -> T:
    """Send a command, always with the same id, until it is answered; returns what `send` returns.

    `send` is a client's method with its arguments; it gets `command_id` and `timeout` besides.
    Without an answer within `timeout_s`, twice as long with each try, it is sent again, without end. An answer that
    says no is final (`CommandRefused`), but for `INTERNAL_ERROR`, which stands for a server's 500: that is
    asked three times more. Raises `CommandNotDelivered` for what Kafka will never take.
    """
    failures = Pauses()
    command_id = command_id or str(uuid.uuid4())

    async def send_once() -> T:
        nonlocal timeout_s
        while True:
            try:
                return await send(command_id=command_id, timeout=timeout_s)
            except CommandTimeout:
                timeout_s = min(2 * timeout_s, _LONGEST_WAIT_S)
                raise
            except CommandRefused as refusal:
                if refusal.code != ErrorCode.INTERNAL_ERROR or failures.are_over:
                    raise
                await failures.take()

    return await outlast(send_once, what)


async def outlast(ask: Callable[[], Awaitable[T]], what: str) -> T:
    """What `ask` returns, asked again for as long as the coordinator is away; `what` is for the log.

    Raises `CommandNotDelivered` for what Kafka will never take, and all else that `ask` raises.
    """
    pauses = Pauses()
    while True:
        try:
            return await ask()
        except CommandTimeout as error:
            _log.warning("%s is not answered yet, going on: %s", what, error)
        except CommandNotDelivered as error:
            if not error.retriable:
                raise
            _log.warning("%s is not delivered yet, going on: %s", what, error)
        await pauses.take()
