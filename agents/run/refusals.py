"""Why a command about a run is refused (spec wire 4)."""

from __future__ import annotations

from typing import Any

from agents.machine import Answer, Decision, View
from agents.run.tables import TERMINALS
from schemas.errors import ErrorCode
from schemas.json_codec import embed
from schemas.run_command import ExecutorCommand
from schemas.stored import RunHead

TERMINAL = "terminal"
"""What an answer holds by reference: the run's terminal state."""


def run_ended(run_id: str, head: RunHead, view: View) -> Decision:
    """A write after the end: `RUN_ENDED` with the stored end, without it once the run is evicted."""
    decision = Decision()
    message = f"the run has ended as {head.status}; use a new run id for new work"
    terminal = view.get(TERMINALS, run_id)
    if terminal is None:
        return decision.refuse(ErrorCode.RUN_ENDED, message)
    body = {"code": ErrorCode.RUN_ENDED.value, "message": message, "terminal": embed(terminal)}
    decision.answer = Answer(False, body, {"terminal": TERMINAL})
    return decision


def recall_terminal(run_id: str, view: View) -> Any:
    """The run's end, which answers hold by reference; None once it is evicted."""
    stored = view.get(TERMINALS, run_id)
    return embed(stored) if stored is not None else None


def run_not_found() -> Decision:
    """A question about a run of which nothing is known."""
    return Decision().refuse(ErrorCode.RUN_NOT_FOUND, "nothing is known of this run; submit it first")


def is_superseded(head: RunHead, command: ExecutorCommand) -> bool:
    """Whether the command names an instance or attempt that is not the run's current one."""
    return head.attempt != 0 and (
        (command.instance_id is not None and command.instance_id != head.instance_id)
        or (command.attempt is not None and command.attempt != head.attempt)
    )


def attempt_superseded(head: RunHead) -> Decision:
    """A command of an executor that another one has replaced."""
    return Decision().refuse(
        ErrorCode.ATTEMPT_SUPERSEDED,
        f"the run's current attempt is {head.attempt} of instance {head.instance_id}; "
        "stop working on this dispatch",
    )
