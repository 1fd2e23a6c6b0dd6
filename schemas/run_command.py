"""What every command about a run has (spec coordinator 10)."""

from __future__ import annotations

from schemas.commands import Command
from schemas.lenient import Number, Text


class RunCommand(Command):
    """A command about one run; `runId` equals the record's key."""

    run_id: str


class ExecutorCommand(RunCommand):
    """A command that an executor sends on behalf of one attempt; clients leave both fields out."""

    instance_id: Text = None
    """From the dispatch. An instance that is not the run's current one is refused (`ATTEMPT_SUPERSEDED`)."""
    attempt: Number = None
    """From the dispatch. An attempt that is not the run's current one is refused."""
