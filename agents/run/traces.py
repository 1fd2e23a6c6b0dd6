"""A run's traces: `trace.add`, `trace.list` (spec coordinator 6, wire 7)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, Request, View
from agents.run.refusals import run_ended
from agents.run.results import MAX_LISTED_BYTES
from agents.run.tables import HEADS, TRACES, UNKNOWN_RUN
from schemas.errors import ErrorCode
from schemas.json_codec import decode, embed, encode
from schemas.stored import RunHead, replace
from schemas.trace_commands import MAX_KEPT_TRACES, MAX_TRACE_BYTES, TraceAdd, TraceList

_MAX_WITH_END_BYTES = 1024 * 1024


def add_trace(request: Request[TraceAdd], view: View) -> Decision:
    """`trace.add`: one trace more; the oldest kept one gives way. Also after the end, until the eviction."""
    run_id, trace = request.key, request.command.trace
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.evicted:
        return run_ended(run_id, head, view)
    decision = Decision()
    if trace.run_id is not None and trace.run_id != run_id:
        return decision.refuse(
            ErrorCode.INVALID_TRACE, "trace.runId: the trace is another run's; leave the field out"
        )
    record = encode(
        {
            "source": trace.source,
            "runId": run_id,
            "phase": trace.phase,
            "ts": trace.ts,
            "ms": trace.ms,
            **(trace.model_extra or {}),
        }
    )
    if len(record) > MAX_TRACE_BYTES:
        return decision.refuse(
            ErrorCode.INVALID_TRACE,
            f"the trace would have {len(record)} bytes; at most {MAX_TRACE_BYTES} are kept",
        )
    number = head.traces + 1
    decision.put(TRACES, (run_id, number), record)
    if number > MAX_KEPT_TRACES:
        decision.delete(TRACES, (run_id, number - MAX_KEPT_TRACES))
    decision.put(HEADS, (run_id,), replace(head, status=head.status or "running", traces=number))
    return decision.succeed({"count": min(number, MAX_KEPT_TRACES)})


def list_traces(request: Request[TraceList], view: View) -> Decision:
    """`trace.list`: the kept traces in the order of their `ts`."""
    head = view.get(HEADS, request.key) or UNKNOWN_RUN
    return Decision().succeed(traces_result(view, request.key, head)[0])


def traces_result(
    view: View, run_id: str, head: RunHead, max_bytes: int = MAX_LISTED_BYTES
) -> tuple[dict[str, Any], int]:
    """As many traces as fit, in the order of their `ts`, and `more` when some do not; and how many bytes they have."""
    kept = []
    for number in range(_first_kept(head), head.traces + 1):
        record = view.get(TRACES, run_id, number)
        if record is not None:
            kept.append((decode(record)["ts"], number, record))
    kept.sort(key=lambda trace: trace[:2])
    traces: list[Any] = []
    size = 0
    for _, _, record in kept:
        if size + len(record) > max_bytes:
            return {"traces": traces, "more": True}, size
        size += len(record)
        traces.append(embed(record))
    return {"traces": traces}, size


def traces_beside(
    view: View, run_id: str, head: RunHead, terminal: bytes | None
) -> tuple[dict[str, Any], int]:
    """As `traces_result`, in an answer that also holds the run's end, which may be large."""
    room = _MAX_WITH_END_BYTES - len(terminal or b"")
    return traces_result(view, run_id, head, max(0, min(MAX_LISTED_BYTES, room)))


def evict_traces(decision: Decision, run_id: str, head: RunHead) -> None:
    """Remove the traces of a run that is evicted."""
    for number in range(_first_kept(head), head.traces + 1):
        decision.delete(TRACES, (run_id, number))


def _first_kept(head: RunHead) -> int:
    return max(1, head.traces - MAX_KEPT_TRACES + 1)
