"""What can go wrong for a client, as exceptions that say what would be right."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from schemas.errors import ERRORS, ErrorCode
from schemas.replies import ReplyError
from schemas.terminals import TerminalState
from streams.user_errors import UserError


@dataclass(frozen=True)
class SentCommand:
    """What was sent, for messages to people."""

    type: str
    command_id: str
    id_field: str
    """Name of the entity's id, such as `runId`."""
    key: str
    """The entity's id, such as the run id."""
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.type} ({self.id_field} {self.key!r}, commandId {self.command_id!r})"


class ClientClosedError(UserError):
    """The client was used before it was opened or after it was closed."""


class CommandRefused(UserError):
    """The coordinator answered that it does not do this; nothing changed.

    `code` is stable (`schemas.errors`), `reason` is for people, `details` holds what the error carries beside
    these two, such as `terminal`.
    """

    def __init__(self, command: SentCommand, error: ReplyError) -> None:
        info = ERRORS.get(ErrorCode(error.code)) if error.code in ErrorCode.__members__ else None
        super().__init__(
            f"{command} was refused: {error.code}: {error.message}", info.advice if info else None
        )
        self.command = command
        self.code = error.code
        self.reason = error.message
        self.details: dict[str, Any] = dict(error.model_extra or {})

    def as_json(self) -> dict[str, Any]:
        """The error for machines: its code, and whatever the refusal says beside it."""
        return {**super().as_json(), "code": self.code, "reason": self.reason, "details": self.details}

    @property
    def advice(self) -> str | None:
        """What to do about it; None for a code that this version does not know."""
        return self.hint

    @property
    def terminal(self) -> TerminalState | None:
        """How the run ended, when the refusal says it (`RUN_ENDED`)."""
        terminal = self.details.get("terminal")
        return TerminalState.model_validate(terminal) if terminal is not None else None


class CommandTimeout(UserError, TimeoutError):
    """No answer came in time. Whether the command took effect is not known; sending it again is safe.

    `delivered`: whether Kafka has stored the command. One that has not arrived yet may still do so.
    """

    def __init__(
        self, command: SentCommand, *, waited_s: float, offset: int | None, replies: str, brokers: str
    ) -> None:
        place = f"{command.topic}[{command.partition}]"
        if offset is None:
            what = f"it has not reached {place} on {brokers} yet"
            hint = "check that Kafka runs there and can be reached"
        else:
            what = f"it is stored in {place} at offset {offset}, but no reply came to {replies}"
            hint = "check that a worker runs with this prefix and that its /health/ready says 200"
        super().__init__(
            f"no answer to {command} within {waited_s:g} s: {what}",
            f"{hint}; sending it again with the same command id is safe",
        )
        self.command = command
        self.waited_s = waited_s
        self.delivered = offset is not None


class CommandNotDelivered(UserError):
    """Kafka did not take the command; it has no effect. `reason` is Kafka's."""

    def __init__(self, command: SentCommand, reason: str, *, retriable: bool) -> None:
        super().__init__(f"{command} could not be stored in {command.topic}[{command.partition}]: {reason}")
        self.command = command
        self.reason = reason
        self.retriable = retriable


class EndTimeout(UserError, TimeoutError):
    """A run did not end within the time that one was ready to wait."""

    def __init__(self, run_id: str, waited_s: float, known: str) -> None:
        super().__init__(
            f"run {run_id!r} did not end within {waited_s:g} s: {known}",
            f"check that an executor runs that knows its name; `runlane events {run_id}` shows how far it is",
        )
        self.run_id = run_id
        self.waited_s = waited_s


class EventsMissing(UserError):
    """A run's events are not all in the topic: `expected` was the next `seq`, `found` is what came."""

    def __init__(self, run_id: str, expected: int, found: int, place: str) -> None:
        if found > expected:
            what = f"events {expected}..{found - 1} of run {run_id!r} are missing in {place}"
            hint = f"the topic's retention may have deleted them: read from seq {found} on"
        else:
            what = f"event {found} of run {run_id!r} came again in {place} when {expected} was next"
            hint = "each event is written once: something else writes to this topic, or this is a bug"
        super().__init__(what, hint)
        self.run_id = run_id
        self.expected = expected
        self.found = found
