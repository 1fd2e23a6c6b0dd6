"""What the methods of a client have in common: a command out, a typed answer back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar

from schemas.results import Result
from streams.messaging.command_sender import CommandSender

R = TypeVar("R", bound=Result)

_QUESTION_MARGIN_S = 10.0
"""What a question that waits in the coordinator gets on top of its wait, to arrive and to be answered."""


class CallOptions(TypedDict, total=False):
    """What every command method takes besides the command's own fields."""

    command_id: str | None
    """Names the intent, 1..200 characters; default: a new one. The same id again changes nothing."""
    timeout: float | None
    """Seconds to wait per attempt; default: the setting `command_timeout_s`."""
    attempts: int
    """How often to send it, with the same command id, when no answer comes; default 1."""


class CommandMethods:
    """Base of the groups of commands that a client has as methods.

    All methods raise `CommandRefused` (the answer is no), `CommandTimeout` (no answer came) and
    `CommandNotDelivered` (Kafka did not take the command).
    """

    def __init__(self, sender: CommandSender) -> None:
        self._sender = sender

    async def _ask(
        self,
        answer: type[R],
        command_type: str,
        key: str,
        fields: Mapping[str, Any],
        wait_ms: int,
        options: CallOptions,
    ) -> R:
        """Send a question that waits `wait_ms` in the coordinator; the answer gets as long, and a margin."""
        if wait_ms and options.get("timeout") is None:
            waits_s = max(self._sender.settings.command_timeout_s, wait_ms / 1000 + _QUESTION_MARGIN_S)
            options = {**options, "timeout": waits_s}
        return await self._call(answer, command_type, key, fields, options)

    async def _call(
        self, answer: type[R], command_type: str, key: str, fields: Mapping[str, Any], options: CallOptions
    ) -> R:
        """Send a command; fields that are None are left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        return answer.model_validate(await self._sender.call(command_type, key, given, **options))
