"""The question about all that is stored of a run (spec coordinator 10, wire 8)."""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.commands import Command
from schemas.run_command import RunCommand


class RunInspect(RunCommand):
    """Ask for everything that is stored about the run: how much of what, and what waits. For operators."""

    is_question: ClassVar[bool] = True

    type: Literal["run.inspect"]


INSPECT_COMMANDS: tuple[type[Command], ...] = (RunInspect,)
