"""Mutations of the run machine, which the sequential lane shares: only what always holds for runs tells of them."""

from __future__ import annotations

from typing import Any

import pytest

from agents.machine import Answer, Decision, Request, View
from agents.run import calls, waits
from agents.run.machine import RULES
from agents.run.tables import CALLS
from schemas.call_commands import CallPublish
from schemas.stored import RunWait
from tests.simulation.mutations.registry import mutation


@mutation
def publish_under_any_fencing_number(patch: pytest.MonkeyPatch) -> None:
    """Who lost the lease of a call publishes its result all the same."""

    def careless(request: Request[CallPublish], view: View) -> Decision:
        command = request.command
        call = view.get(CALLS, request.key, command.tool_id, command.input_hash)
        if call is not None:
            command = command.model_copy(update={"fencing_number": call.fencing_number})
        return calls.publish(Request(command, request.key, request.now, request.reply_to), view)

    patch.setitem(RULES, CallPublish, careless)  # type: ignore[misc]


@mutation
def give_a_lease_that_is_held(patch: pytest.MonkeyPatch) -> None:
    """Who claims a call gets it, though somebody executes it."""
    patch.setattr(calls, "is_held", lambda call, now: False)


@mutation
def answer_a_wait_twice(patch: pytest.MonkeyPatch) -> None:
    """Who waits is answered again."""
    answer = waits.Answering.answer

    def eager(
        answering: waits.Answering, key: waits.WaitKey, record: RunWait, result: Any, size: int = 0
    ) -> None:
        answer(answering, key, record, result, size)
        late = answering._decision.late_answers[-1]
        answering._decision.answer_late(late.reply_to, late.command_id, Answer(True, result))

    patch.setattr(waits.Answering, "answer", eager)


@mutation
def let_a_question_wait_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A wait has no timer."""
    schedule = Decision.schedule

    def forgetful(decision: Decision, name: str, due: int, payload: Any = None) -> None:
        if not name.startswith(f"{waits.TIMER}:"):
            schedule(decision, name, due, payload)

    patch.setattr(Decision, "schedule", forgetful)
