"""What the outside tells a run: `run.signal` (spec coordinator 9, wire 7)."""

from __future__ import annotations

from typing import NamedTuple

from agents.machine import Decision, Request, View
from agents.run.child_results import store_child_result
from agents.run.refusals import run_ended
from agents.run.tables import HEADS, UNKNOWN_RUN
from schemas.errors import ErrorCode
from schemas.names import MAX_NAME_BYTES, trim
from schemas.signal_commands import INTEGRATION_EVENT, RunSignal, signal_type


class SignalTarget(NamedTuple):
    """What a signal becomes."""

    type: str
    """The signal's type."""
    event_key: str
    """The named result that the run gets."""
    stored: bool
    """Whether it is the result of the signal's key, and not of its type."""


def target_of(command: RunSignal) -> SignalTarget:
    """What a signal becomes.

    An integration event with a key is the result of that key, as a child's would be; any other signal is the result
    of its type.
    """
    key = _key(command)
    of_key = signal_type(f"{INTEGRATION_EVENT}_{key}" if key else INTEGRATION_EVENT)
    given = trim(command.signal_type or "")
    type_ = signal_type(given) if given else of_key
    stored = bool(key) and type_ in (INTEGRATION_EVENT, of_key)
    return SignalTarget(type_, key if stored else type_, stored)


def signal(request: Request[RunSignal], view: View) -> Decision:
    """`run.signal`: the run gets the payload as a named result."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    if len(_key(command).encode()) > MAX_NAME_BYTES:
        return Decision().refuse(
            ErrorCode.INVALID_COMMAND, f"eventKey: at most {MAX_NAME_BYTES} bytes are taken"
        )
    target = target_of(command)
    state = {"eventKey": target.event_key, "data": command.payload, "storedAt": request.now}
    decision = Decision()
    head, _ = store_child_result(decision, view, run_id, head, state)
    decision.put(HEADS, (run_id,), head)
    return decision.succeed({"signalType": target.type, "stored": target.stored})


def _key(command: RunSignal) -> str:
    return trim(command.event_key or "") or trim(command.event_key_too or "")
