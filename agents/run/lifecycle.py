"""How a run begins and how it stands: `run.submit` and `run.status` (spec coordinator 9, wire 3 and 4)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, Request, View
from agents.run.event_log import store_event
from agents.run.instance_id import instance_id
from agents.run.refusals import run_ended, run_not_found
from agents.run.results import status_result
from agents.run.sessions import store_sessions
from agents.run.tables import HEADS, TERMINALS, UNKNOWN_RUN
from agents.run.traces import traces_beside
from agents.run.waits import OF_END, answer_event, slept_for, wait
from schemas.base_urls import base_url
from schemas.json_codec import decode, encode
from schemas.run_commands import RunStatus, RunSubmit
from schemas.session_commands import DEFAULT_SESSIONS_TTL_MS
from schemas.stored import replace
from schemas.topics import RUN_DISPATCH

RUN_ID = "runId"
"""What an answer holds by reference: the run's id, whose JSON may have six times its 512 bytes."""

_TOPIC = RUN_DISPATCH.name


def submit(request: Request[RunSubmit], view: View) -> Decision:
    """`run.submit`: the run is running, and an executor is told; a run is submitted only once."""
    run_id, command, now = request.key, request.command, request.now
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.submit_seq:
        return Decision().succeed(_submitted(run_id, head.submit_seq), runId=RUN_ID)
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    seq, instance = head.latest_seq + 1, instance_id(run_id)
    event = encode(
        {
            "seq": seq,
            "runId": run_id,
            "type": "status",
            "ts": now,
            "status": "running",
            "commandId": command.command_id,
        }
    )
    decision = Decision()
    store_event(decision, run_id, seq, event)
    if command.sessions is not None:
        store_sessions(decision, run_id, command.sessions, now + DEFAULT_SESSIONS_TTL_MS)
    attempt = max(1, head.attempt)  # An instance that was recorded before may have a higher one.
    decision.emit(_TOPIC, run_id, encode(_dispatch(command, instance, attempt, now)))
    head = replace(
        head, status="running", latest_seq=seq, attempt=attempt, instance_id=instance, submit_seq=seq
    )
    if head.waits:
        head = answer_event(decision, view, run_id, head, event)
    decision.put(HEADS, (run_id,), head)
    return decision.succeed(_submitted(run_id, seq), runId=RUN_ID)


def status(request: Request[RunStatus], view: View) -> Decision:
    """`run.status`: how the run stands; with `waitMs`, how it stands at its end or when the time is up."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.status is None:
        return run_not_found()
    trace = bool(command.trace == 1)  # True is 1 too.
    if command.wait_ms > 0 and head.ended_at is None:
        return wait(request, view, head, OF_END, command.wait_ms, trace=trace)
    stored = view.get(TERMINALS, run_id) if head.ended_at is not None else None
    terminal = decode(stored) if stored is not None else None
    traces = traces_beside(view, run_id, head, stored)[0] if trace else None
    return Decision().succeed(status_result(run_id, head, terminal, traces, slept_for(view, run_id, head)))


def _submitted(run_id: str, seq: int) -> dict[str, Any]:
    return {"runId": run_id, "instanceId": instance_id(run_id), "status": "running", "seq": seq}


def _dispatch(command: RunSubmit, instance: str, attempt: int, now: int) -> dict[str, Any]:
    """The order to an executor; see `schemas.dispatches.Dispatch`."""
    dispatch: dict[str, Any] = {
        "runId": command.run_id,
        "instanceId": instance,
        "attempt": attempt,
        "name": command.name,
    }
    if command.params_ref is not None:
        dispatch["paramsRef"] = command.params_ref
    else:
        dispatch["params"] = command.params
    if command.pool is not None:
        dispatch["pool"] = command.pool
    if command.parent_run_id is not None:
        dispatch["parentRunId"] = command.parent_run_id
    url = base_url(command.callback_base_url) or base_url(command.base_url)
    if url is not None:
        dispatch["baseUrl"] = url
    dispatch["dispatchedAt"] = now
    dispatch["commandId"] = command.command_id
    return dispatch
