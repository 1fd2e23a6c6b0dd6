"""The commands by which a parent gets the results of what it waits for (spec coordinator 3, wire 7)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from schemas.commands import Command
from schemas.lenient import Number, clamped
from schemas.names import TrimmedName
from schemas.run_command import ExecutorCommand, RunCommand


class ChildCommand(RunCommand):
    """A command about one named result of a run."""

    event_key: TrimmedName
    """Names the result within the run: 1..512 bytes of UTF-8; white space around it does not count."""


class ChildTerminalSet(ChildCommand):
    """Store a named result for the run, and answer all who wait for it. Set again, the new one stands."""

    type: Literal["child.terminal.set"]
    data: Any = None
    """The result, any JSON."""
    stored_at: Number = None
    """When it came about, in ms since the epoch; default: the command's time."""


class ChildTerminalGet(ChildCommand):
    """Ask for a named result."""

    is_question: ClassVar[bool] = True

    type: Literal["child.terminal.get"]


class ChildTerminalAwait(ChildCommand, ExecutorCommand):
    """Ask for a named result; when it is not there yet, wait for it.

    With an `instanceId` the run's own function waits: meanwhile the run is `sleeping`.
    """

    is_question: ClassVar[bool] = True

    type: Literal["child.terminal.await"]
    timeout_ms: clamped(0, 30_000, 0) = 0  # type: ignore[valid-type]
    """How long to wait when there is none yet, limited to 0..30000 ms."""


CHILD_COMMANDS: tuple[type[Command], ...] = (ChildTerminalSet, ChildTerminalGet, ChildTerminalAwait)
