"""How a run ends: `terminal.set`, `terminal.get` and `run.cancel` (spec coordinator 2, wire 3 and 4)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, Request, View
from agents.run.event_log import store_event
from agents.run.eviction import schedule_eviction
from agents.run.refusals import TERMINAL, attempt_superseded, is_superseded, run_ended
from agents.run.tables import HEADS, TERMINALS, UNKNOWN_RUN
from agents.run.waits import answer_end
from schemas.json_codec import decode, embed, encode, same_value
from schemas.run_commands import RunCancel, TerminalGet, TerminalSet
from schemas.stored import RunHead, replace
from schemas.topics import RUN_TERMINALS

_TOPIC = RUN_TERMINALS.name


def set_terminal(request: Request[TerminalSet], view: View) -> Decision:
    """`terminal.set`: the first end stands; the same again is answered as done, another one is refused."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    end = {
        "status": command.status,
        "result": command.result,
        "error": command.error,
        "totalRows": command.total_rows,
        "durationMs": command.duration_ms,
        "playName": command.play_name,
    }
    if head.ended_at is not None:
        stored = view.get(TERMINALS, run_id)
        if stored is None or not _is_same_end(decode(stored), end):
            return run_ended(run_id, head, view)
        return Decision().succeed({"terminal": embed(stored), "repeated": True}, terminal=TERMINAL)
    if is_superseded(head, command):
        return attempt_superseded(head)
    completed_at = request.now if command.completed_at is None else command.completed_at
    decision = Decision()
    state = _end(decision, request, view, head, end, completed_at)
    return decision.succeed({"terminal": embed(state), "repeated": False}, terminal=TERMINAL)


def get_terminal(request: Request[TerminalGet], view: View) -> Decision:
    """`terminal.get`: the stored end, or null."""
    stored = view.get(TERMINALS, request.key)
    return Decision().succeed({"terminal": embed(stored) if stored is not None else None})


def cancel(request: Request[RunCancel], view: View) -> Decision:
    """`run.cancel`: end the run as cancelled, also one that nobody knows yet; an earlier end stands."""
    run_id = request.key
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    decision = Decision()
    if head.ended_at is not None:
        stored = view.get(TERMINALS, run_id)
        if stored is None:
            return run_ended(run_id, head, view)
        return decision.succeed({"status": head.status, "terminal": embed(stored)}, terminal=TERMINAL)
    end = {
        "status": "cancelled",
        "result": None,
        "error": request.command.reason,
        "totalRows": None,
        "durationMs": None,
        "playName": None,
    }
    state = _end(decision, request, view, head, end, request.now)
    return decision.succeed({"status": "cancelled", "terminal": embed(state)}, terminal=TERMINAL)


def _end(
    decision: Decision,
    request: Request[TerminalSet] | Request[RunCancel],
    view: View,
    head: RunHead,
    end: dict[str, Any],
    completed_at: float,
) -> bytes:
    """Append the terminal event and store the terminal state, both or neither; returns the state's JSON."""
    run_id, command_id, now = request.key, request.command.command_id, request.now
    seq = head.latest_seq + 1
    terminal = {"runId": run_id, "seq": seq, **end, "completedAt": completed_at, "commandId": command_id}
    event = encode(
        {
            "seq": seq,
            "runId": run_id,
            "type": "terminal",
            "ts": completed_at,
            **end,
            "commandId": command_id,
        }
    )
    state = encode(terminal)
    store_event(decision, run_id, seq, event)
    decision.put(TERMINALS, (run_id,), state)
    decision.emit(_TOPIC, run_id, state)
    head = replace(head, status=end["status"], latest_seq=seq, ended_at=now)
    if head.waits:
        head = answer_end(decision, view, run_id, head, event, terminal)
    decision.put(HEADS, (run_id,), head)
    schedule_eviction(decision, now)
    return state


def _is_same_end(stored: dict[str, Any], end: dict[str, Any]) -> bool:
    """Whether an end says the same as the stored one; when it completed does not matter."""
    return all(same_value(stored[name], value) for name, value in end.items())
