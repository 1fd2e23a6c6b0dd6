"""Named results that a run waits for, of its children or of the outside (spec coordinator 3, wire 7)."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from agents.machine import Decision, Request, View
from agents.run import waits
from agents.run.refusals import attempt_superseded, is_superseded, run_ended
from agents.run.results import child_result
from agents.run.tables import CHILDREN, HEADS, UNKNOWN_RUN
from schemas.child_commands import ChildTerminalAwait, ChildTerminalGet, ChildTerminalSet
from schemas.json_codec import embed, encode
from schemas.stored import RunHead, replace

CHILD = "child"
"""What an answer holds by reference, with the event key behind a colon: the result's present state."""

_MAX_REMEMBERED_BYTES = 1024
"""An answer with a larger state is not kept as it is, so that what is remembered of a command stays small."""


def set_child(request: Request[ChildTerminalSet], view: View) -> Decision:
    """`child.terminal.set`: store the result, and answer all who wait for it."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    decision = Decision()
    stored_at = request.now if command.stored_at is None else command.stored_at
    state = {"eventKey": command.event_key, "data": command.data, "storedAt": stored_at}
    head, stored = store_child_result(decision, view, run_id, head, state)
    decision.put(HEADS, (run_id,), head)
    if len(stored) <= _MAX_REMEMBERED_BYTES:
        return decision.succeed({"state": state})
    return decision.succeed({"state": embed(stored)}, state=reference(command.event_key))


def get_child(request: Request[ChildTerminalGet], view: View) -> Decision:
    """`child.terminal.get`: the stored result, or null."""
    head = view.get(HEADS, request.key) or UNKNOWN_RUN
    return Decision().succeed(child_result(_stored(view, request.key, head, request.command.event_key)))


def await_child(request: Request[ChildTerminalAwait], view: View) -> Decision:
    """`child.terminal.await`: the stored result; when there is none yet, wait for it."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    stored = _stored(view, run_id, head, command.event_key)
    if stored is None and command.timeout_ms > 0 and head.ended_at is None:
        if is_superseded(head, command):
            return attempt_superseded(head)
        on, sleeps = waits.of_child(command.event_key), head.attempt > 0 and command.instance_id is not None
        return waits.wait(request, view, head, on, command.timeout_ms, sleeps=sleeps)
    return Decision().succeed(child_result(stored))


def store_child_result(
    decision: Decision, view: View, run_id: str, head: RunHead, state: dict[str, Any]
) -> tuple[RunHead, bytes]:
    """Store a result (`eventKey`, `data`, `storedAt`) and answer who waits for it.

    Returns the head, which the caller has to store, and the state's JSON.
    """
    event_key = state["eventKey"]
    stored = encode(state)
    decision.put(CHILDREN, (run_id, event_key), stored)
    head = replace(head, status="running")
    if head.waits:
        on, result = waits.of_child(event_key), child_result(stored)
        head = waits.answer_subject(decision, view, run_id, head, on, result, len(stored))
    return head, stored


def reference(event_key: str) -> str:
    """By what name an answer refers to a child's result; in base64, since JSON may escape each byte by six."""
    return f"{CHILD}:{b64encode(event_key.encode()).decode()}"


def recall(name: str, run_id: str, view: View) -> Any:
    """The present state of the result that a reference names (`name`: what stands behind its colon)."""
    stored = view.get(CHILDREN, run_id, b64decode(name).decode())
    return embed(stored) if stored is not None else None


def _stored(view: View, run_id: str, head: RunHead, event_key: str) -> bytes | None:
    return None if head.evicted else view.get(CHILDREN, run_id, event_key)
