"""A run's events: `events.append` and `events.list` (spec coordinator 1, wire 2 to 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.machine import Decision, Request, View
from agents.run.refusals import attempt_superseded, is_superseded, run_ended
from agents.run.results import MAX_KEPT_EVENTS, events_result, first_kept, listed
from agents.run.tables import EVENTS, HEADS, UNKNOWN_RUN
from agents.run.waits import OF_EVENTS, answer_event, wait
from schemas.events import LogEventInput, ProgressEventInput, StatusEventInput
from schemas.json_codec import encode
from schemas.run_commands import EventsAppend, EventsList
from schemas.stored import RunHead, replace
from schemas.topics import RUN_EVENTS

_TOPIC = RUN_EVENTS.name


def append(request: Request[EventsAppend], view: View) -> Decision:
    """`events.append`: one event more; an unknown run becomes a running one."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    if is_superseded(head, command):
        return attempt_superseded(head)
    event = command.event
    seq = head.latest_seq + 1
    ts = request.now if event.ts is None else event.ts
    fields = {"seq": seq, "runId": run_id, "type": event.type, "ts": ts}
    _OWN_FIELDS[type(event)](event, fields)
    fields["commandId"] = command.command_id
    value = encode(fields)
    decision = Decision()
    store_event(decision, run_id, seq, value)
    head = replace(head, status="running", latest_seq=seq)
    if head.waits:
        head = answer_event(decision, view, run_id, head, value)
    decision.put(HEADS, (run_id,), head)
    return decision.succeed({"seq": seq, "ts": ts})


def list_events(request: Request[EventsList], view: View) -> Decision:
    """`events.list`: the kept events after `afterSeq`; when there are none yet, wait for one."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if command.timeout_ms > 0 and command.after_seq >= head.latest_seq and head.ended_at is None:
        return wait(request, view, head, OF_EVENTS, command.timeout_ms, order=command.after_seq + 1)
    return Decision().succeed(_read_events(view, run_id, head, command.after_seq, command.limit))


def store_event(decision: Decision, run_id: str, seq: int, value: bytes) -> None:
    """Keep and emit an event's JSON under the run's next `seq`; the oldest kept one gives way."""
    decision.put(EVENTS, (run_id, seq), value)
    if seq > MAX_KEPT_EVENTS:
        decision.delete(EVENTS, (run_id, seq - MAX_KEPT_EVENTS))
    decision.emit(_TOPIC, run_id, value)


def _status_fields(event: StatusEventInput, fields: dict[str, Any]) -> None:
    fields["status"] = event.status
    if event.logs is not None:
        fields["logs"] = _strings(event.logs)


def _log_fields(event: LogEventInput, fields: dict[str, Any]) -> None:
    fields["line"] = event.line


def _progress_fields(event: ProgressEventInput, fields: dict[str, Any]) -> None:
    fields["status"] = event.status
    fields["logs"] = None if event.logs is None else _strings(event.logs)
    fields["activeNodeId"] = event.active_node_id
    fields["activeArtifactTableNamespace"] = event.active_artifact_table_namespace
    fields["updatedAt"] = event.updated_at


def _strings(items: list[Any]) -> list[str]:
    return [item for item in items if isinstance(item, str)]


_OWN_FIELDS: dict[type[Any], Callable[[Any, dict[str, Any]], None]] = {
    StatusEventInput: _status_fields,
    LogEventInput: _log_fields,
    ProgressEventInput: _progress_fields,
}
"""What each kind of event adds to the fields that all have."""


def _read_events(view: View, run_id: str, head: RunHead, after_seq: int, limit: int) -> dict[str, Any]:
    if head.evicted:
        return events_result(head, [])
    first = max(after_seq + 1, first_kept(head.latest_seq))
    last = min(first + limit - 1, head.latest_seq)
    events = listed(_kept_event(view, run_id, head, seq) for seq in range(first, last + 1))
    return events_result(head, events, more=first + len(events) <= head.latest_seq)


def _kept_event(view: View, run_id: str, head: RunHead, seq: int) -> bytes:
    event = view.get(EVENTS, run_id, seq)
    if event is None:
        raise LookupError(f"event {seq} is missing, though the run's latest is {head.latest_seq}")
    return event
