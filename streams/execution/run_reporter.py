"""What an execution tells the coordinator: its events, in order, and the run's end."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from schemas.dispatches import Dispatch
from schemas.errors import ErrorCode
from schemas.events import TerminalStatus
from schemas.json_codec import encode, require_faithful
from schemas.replies import Reply
from streams.client import RunlaneClient
from streams.client_errors import CommandNotDelivered, CommandRefused
from streams.execution.command_ids import CommandIds
from streams.execution.insistence import insist
from streams.execution.known_secrets import KnownSecrets
from streams.messaging.command_sender import PendingCommand

_OVER = {ErrorCode.RUN_ENDED, ErrorCode.ATTEMPT_SUPERSEDED}
"""The run is not this execution's any more; that is no error of the function."""
_MAX_AWAITED = 200
_ENVELOPE_BYTES = 2048
_log = logging.getLogger("runlane.executor")


class RunStopped(BaseException):
    """The run is not this execution's any more: it ended (cancelled, say), or another attempt took over.

    Not an `Exception`, so that a function's `except Exception` lets it pass, as it does with cancellation.
    """


class RunReporter:
    """The reports of one execution; each carries `instanceId`, `attempt` and a derived command id."""

    def __init__(
        self,
        client: RunlaneClient,
        dispatch: Dispatch,
        secrets: KnownSecrets,
        on_over: Callable[[str], None],
    ) -> None:
        """`on_over(code)` is called once, when the coordinator says that the run is not this execution's."""
        self.over: str | None = None
        """The code with which the coordinator said so."""
        self._client = client
        self._dispatch = dispatch
        self._secrets = secrets
        self._ids = CommandIds(dispatch)
        self._on_over = on_over
        self._position = 0
        self._applied = 0
        self._awaited: deque[PendingCommand] = deque()

    async def resume(self) -> bool:
        """Find out how far an earlier execution of the same dispatch got; False: there is nothing left to do.

        Its events are not sent again, however many there are: the coordinator remembers only the newest
        command ids of a run. Waits for the coordinator without end.
        """
        client, run_id = self._client, self._dispatch.run_id
        what, timeout_s = f"run {run_id}: the question how far it is", client.settings.command_timeout_s
        try:
            state = await insist(partial(client.status, run_id), what, timeout_s=timeout_s)
            if state.ended:
                return False
            after = max(0, state.latest_seq - 500)
            while after < state.latest_seq:
                page = await insist(
                    partial(client.list_events, run_id, after_seq=after), what, timeout_s=timeout_s
                )
                for event in page.events:
                    self._applied = max(self._applied, self._ids.position_of(event.get("commandId")))
                    after = max(after, event["seq"])
                if not page.more:
                    break
        except CommandRefused as refusal:
            _log.warning("run %s: not executed: %s", run_id, refusal)
            return False
        return True

    async def event(self, event: dict[str, Any]) -> None:
        """Send the execution's next event; returns when it is on its way, in order.

        Raises `RunStopped` when the run is over, `ValueError` for what cannot be an event.
        """
        if self.over is not None:
            raise RunStopped(self.over)
        event = self._secrets.hide(event)
        size = len(encode(event)) + _ENVELOPE_BYTES
        limit = self._client.settings.max_command_bytes
        if size > limit:
            raise ValueError(f"an event of {size} bytes is too large: at most {limit} are accepted")
        self._position += 1
        if self._position <= self._applied:
            return
        sender, run_id, command_id = (
            self._client.sender,
            self._dispatch.run_id,
            self._ids.event(self._position),
        )
        fields = {"event": event, **self._identity()}
        # Kafka keeps the command, so nothing but an early stop depends on the answer: a flood needs not all.
        if len(self._awaited) >= _MAX_AWAITED:
            await sender.post("events.append", run_id, fields, command_id=command_id)
            return
        pending = await sender.begin("events.append", run_id, fields, command_id=command_id)
        self._awaited.append(pending)
        pending.reply.add_done_callback(self._answered)

    async def end(self, status: TerminalStatus, **fields: Any) -> TerminalStatus | None:
        """End the run, and return when the coordinator has said yes, or that it had ended before.

        Asks again without end while no answer comes. A result that is no JSON, or that the coordinator does
        not take, fails the run. Returns the status that was sent last; None when that was refused too.
        """
        run_id = self._dispatch.run_id
        refusal = await self._send_end(1, {"status": status, **fields})
        if refusal is not None and status == "completed":
            error = f"the result was refused: {refusal}"
            failed = {name: value for name, value in fields.items() if name not in ("result", "totalRows")}
            status, refusal = (
                "failed",
                await self._send_end(2, {"status": "failed", **failed, "error": error}),
            )
            if refusal is None and self.over is None:
                _log.warning("run %s: failed, %s", run_id, error)
        if refusal is not None:
            _log.error("run %s: its end was refused: %s", run_id, refusal)
            return None
        return status

    def close(self) -> None:
        """Send no more, and let go of answers that have not come."""
        self.over = self.over or "CLOSED"
        for pending in self._awaited:
            self._client.sender.forget(pending)
        self._awaited.clear()

    async def _send_end(self, number: int, fields: dict[str, Any]) -> str | None:
        run_id = self._dispatch.run_id
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            require_faithful(given)
        except TypeError as error:
            return f"it is no JSON: {error}"
        told = {**self._secrets.hide(given), **self._identity()}
        try:
            await insist(
                partial(self._client.sender.call, "terminal.set", run_id, told),
                f"run {run_id}: its end",
                timeout_s=self._client.settings.command_timeout_s,
                command_id=self._ids.end(number),
            )
        except CommandNotDelivered as error:
            return error.message
        except CommandRefused as refusal:
            return None if self.is_over(refusal.code) else f"{refusal.code}: {refusal.reason}"
        return None

    def _identity(self) -> dict[str, Any]:
        return {"instanceId": self._dispatch.instance_id, "attempt": self._dispatch.attempt}

    def _answered(self, reply: asyncio.Future[Reply]) -> None:
        while self._awaited and self._awaited[0].reply.done():
            self._awaited.popleft()
        if reply.cancelled():
            return
        if error := reply.exception():
            _log.error("run %s: an event was lost: %s", self._dispatch.run_id, error)
        elif not self._is_over(reply.result()) and (refused := reply.result().error) is not None:
            _log.warning(
                "run %s: an event was refused: %s: %s", self._dispatch.run_id, refused.code, refused.message
            )

    def is_over(self, code: str) -> bool:
        """Whether a refusal with this code says that the run is not this execution's any more; it stops then."""
        if code not in _OVER:
            return False
        if self.over is None:
            self.over = code
            self._on_over(code)
        return True

    def _is_over(self, reply: Reply) -> bool:
        return reply.error is not None and self.is_over(reply.error.code)
