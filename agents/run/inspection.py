"""`run.inspect`: everything that is stored about a run, its sizes included (spec coordinator 10, wire 8).

A question of operators: it looks at every record of the run, up to a bound for each table.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from agents.machine import Decision, Request, View
from agents.run.refusals import run_not_found
from agents.run.results import MAX_LISTED_BYTES, first_kept, listed, told_status
from agents.run.tables import (
    CALL_RESULTS,
    CALLS,
    CHILDREN,
    EVENTS,
    HEADS,
    INSTANCES,
    RETRIES,
    RETRY_PARAMS,
    SESSIONS,
    TERMINALS,
    TRACES,
    UNKNOWN_RUN,
    WAIT_GROUPS,
    WAITS,
)
from agents.run.waits import slept_for
from agents.tables import Table
from schemas.inspect_commands import RunInspect
from schemas.json_codec import decode, encode
from schemas.stored import RunHead

MAX_COUNTED = 1000
"""Records of one table that are looked at."""

_PARTS: tuple[tuple[str, tuple[Table[Any], ...]], ...] = (
    ("events", (EVENTS,)),
    ("terminal", (TERMINALS,)),
    ("calls", (CALLS,)),
    ("callResults", (CALL_RESULTS,)),
    ("children", (CHILDREN,)),
    ("retry", (RETRIES, RETRY_PARAMS)),
    ("sessions", (SESSIONS,)),
    ("instance", (INSTANCES,)),
    ("traces", (TRACES,)),
    ("waits", (WAITS, WAIT_GROUPS)),
)
_MAX_LIST_BYTES = MAX_LISTED_BYTES // 2


def inspect(request: Request[RunInspect], view: View) -> Decision:
    """`run.inspect`: how much of what is stored, and what waits; never parameters, results or sessions."""
    run_id = request.key
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.status is None and not head.waits:
        return run_not_found()
    # What an eviction has still to delete is not the run's any more.
    children = [] if head.evicted else listed(_children(view, run_id), _MAX_LIST_BYTES)
    waiting = listed(_waiting(view, run_id), _MAX_LIST_BYTES)
    parts = [_part(view, run_id, what, tables) for what, tables in _PARTS]
    counts = {part["what"]: part["records"] for part in parts}
    result = {
        "runId": run_id,
        "status": told_status(head, slept_for(view, run_id, head)),
        **_of_head(head),
        "children": children,
        **_launch_state(view, run_id),
        "waiting": waiting,
        "stored": [part for part in parts if part["records"]],
    }
    if len(waiting) < head.waits or (len(children) < counts["children"] and not head.evicted):
        result["more"] = True
    return Decision().succeed(result)


def _of_head(head: RunHead) -> dict[str, Any]:
    return {
        "latestSeq": head.latest_seq,
        "firstSeq": 0 if head.evicted else first_kept(head.latest_seq),
        "submitSeq": head.submit_seq,
        "attempt": head.attempt,
        "instanceId": head.instance_id,
        "endedAt": head.ended_at,
        "evictsAt": head.evicts_at,
        "evicted": head.evicted,
        "calls": head.calls,
        "traces": head.traces,
        "waits": head.waits,
    }


def _part(view: View, run_id: str, what: str, tables: tuple[Table[Any], ...]) -> dict[str, Any]:
    """How many records a run has in the first of some tables, and how large they are in all of them."""
    counted, size, more = [0] * len(tables), 0, False
    for number, table in enumerate(tables):
        for key, record in view.scan(table, run_id):
            if counted[number] == MAX_COUNTED:
                more = True
                break
            counted[number] += 1
            size += len(table.key(*key)) + len(table.encode(record))
    part: dict[str, Any] = {"what": what, "records": counted[0], "bytes": size}
    return {**part, "more": True} if more else part


def _children(view: View, run_id: str) -> Iterator[bytes]:
    for (_, event_key), state in islice(view.scan(CHILDREN, run_id), MAX_COUNTED):
        child = {"eventKey": event_key, "storedAt": decode(state)["storedAt"], "bytes": len(state)}
        yield encode(child)


def _launch_state(view: View, run_id: str) -> dict[str, Any]:
    retry, params = view.get(RETRIES, run_id), view.get(RETRY_PARAMS, run_id)
    sessions, instance = view.get(SESSIONS, run_id), view.get(INSTANCES, run_id)
    return {
        "retry": retry
        and {
            "attempts": retry.attempts,
            "updatedAt": retry.updated_at,
            "expiresAt": retry.expires_at,
            "paramsBytes": len(params or b""),
        },
        "sessions": sessions and {"sessionCount": sessions.count, "expiresAt": sessions.expires_at},
        "instance": instance
        and {
            "instanceId": instance.instance_id,
            "attempt": instance.attempt,
            "expiresAt": instance.expires_at,
        },
    }


def _waiting(view: View, run_id: str) -> Iterator[bytes]:
    for (_, subject, _, _), record in view.scan(WAITS, run_id):
        wait: dict[str, Any] = {
            "type": record.kind,
            "commandId": record.command_id,
            "on": decode(subject.encode()),
        }
        if record.owner is not None:
            wait["owner"] = record.owner
        yield encode(wait)
