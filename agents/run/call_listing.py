"""`call.debug`: a run's calls and how they stand (spec coordinator 4, wire 7)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agents.machine import Decision, Request, View
from agents.run.calls import is_held
from agents.run.results import listed
from agents.run.tables import CALLS, HEADS, UNKNOWN_RUN, WAIT_GROUPS
from agents.run.waits import is_of_call
from schemas.call_commands import CallDebug
from schemas.json_codec import encode
from schemas.stored_calls import StoredCall


def list_calls(request: Request[CallDebug], view: View) -> Decision:
    """`call.debug`: the calls in the order of tool and input hash, as many as an answer holds."""
    run_id = request.key
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    groups = view.scan(WAIT_GROUPS, run_id) if head.waits else ()
    result: dict[str, Any] = {
        "size": head.calls,
        "waiters": sum(group.waits for (_, subject), group in groups if is_of_call(subject)),
        "entries": listed(_entries(view, run_id, request.now)) if head.calls else [],
    }
    if len(result["entries"]) < head.calls:
        result["more"] = True
    return Decision().succeed(result)


def _entries(view: View, run_id: str, now: int) -> Iterator[bytes]:
    for (_, tool_id, input_hash), call in view.scan(CALLS, run_id):
        entry = {
            "toolId": tool_id,
            "inputHash": input_hash,
            "state": _state(call, now),
            "fencingNumber": call.fencing_number,
        }
        if call.owner is not None:
            entry["owner"] = call.owner
        if call.lease_expires_at:
            entry["leaseExpiresAt"] = call.lease_expires_at
        yield encode(entry)


def _state(call: StoredCall, now: int) -> str:
    if call.ok is not None:
        return "published" if call.ok else "failed"
    if not call.lease_expires_at:
        return "released"
    return "claimed" if is_held(call, now) else "expired"
