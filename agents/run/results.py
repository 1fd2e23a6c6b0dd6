"""The results of the questions about a run, which are also the answers to those that waited (spec wire 3 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from schemas.json_codec import embed
from schemas.stored import RunHead

MAX_KEPT_EVENTS = 500

MAX_LISTED_BYTES = 768 * 1024
"""Of what one answer lists."""

SLEEPING = "sleeping"

_MAX_TOLD_NAMES = 20


def first_kept(latest_seq: int) -> int:
    """`seq` of the oldest event that is kept; 0 when there is none."""
    return max(1, latest_seq - MAX_KEPT_EVENTS + 1) if latest_seq else 0


def listed(records: Iterable[bytes], max_bytes: int = MAX_LISTED_BYTES) -> list[Any]:
    """As many records (JSON) as one answer holds, embedded; one at least, if there is one (spec wire 2)."""
    items: list[Any] = []
    size = 0
    for record in records:
        size += len(record)
        if items and size > max_bytes:
            break
        items.append(embed(record))
    return items


def events_result(head: RunHead, events: list[Any], *, more: bool = False) -> dict[str, Any]:
    """The result of `events.list`: embedded events in the order of their `seq`; `more` only when true."""
    result = {
        "events": events,
        "latestSeq": head.latest_seq,
        "firstSeq": 0 if head.evicted else first_kept(head.latest_seq),
    }
    if more:
        result["more"] = True
    return result


def told_status(head: RunHead, slept_for: Sequence[str]) -> str | None:
    """The run's status as it is told: a run whose own function waits for results (`slept_for`) is sleeping."""
    return SLEEPING if slept_for and head.status is not None and head.ended_at is None else head.status


def status_result(
    run_id: str,
    head: RunHead,
    terminal: dict[str, Any] | None,
    traces: dict[str, Any] | None = None,
    slept_for: Sequence[str] = (),
) -> dict[str, Any]:
    """The result of `run.status`. `terminal` is the run's end, None before it and after the eviction.

    `traces`: see `agents.run.traces`; None when they were not asked for. `slept_for`: the names of the results for
    which the run's own function waits; the first 20 are told.
    """
    end = terminal or {}
    status = told_status(head, slept_for)
    result = {
        "runId": run_id,
        "status": status,
        "result": end.get("result"),
        "error": end.get("error"),
        "totalRows": end.get("totalRows"),
        "durationMs": end.get("durationMs"),
        "latestSeq": head.latest_seq,
    }
    if status == SLEEPING:
        result["wait"] = {"kind": "integration_event_batch", "eventKeys": list(slept_for[:_MAX_TOLD_NAMES])}
    if traces is not None:
        result |= traces
    return result


def child_result(state: bytes | None) -> dict[str, Any]:
    """The result of `child.terminal.get` and `.await`, from the stored state."""
    return {"state": embed(state) if state is not None else None}


def outcome_name(*, ok: bool) -> str:
    """Under what name the outcome of a call is stored and answered."""
    return "value" if ok else "error"


def embed_outcome(outcome: bytes, *, ok: bool) -> Any:
    """The value or error of a stored outcome, embedded: what stands between `{"value":` and `}`."""
    return embed(outcome[len(outcome_name(ok=ok)) + len('{"":') : -1])


def hit_result(outcome: bytes, *, ok: bool) -> dict[str, Any]:
    """The result of `call.claim` and `call.await` when the call's outcome is there, as it is stored."""
    return {"status": "hit", "ok": ok, outcome_name(ok=ok): embed_outcome(outcome, ok=ok)}


def timeout_result() -> dict[str, Any]:
    """The result of `call.await` when the call's result is not there in time."""
    return {"status": "timeout"}


def claimed_result(fencing_number: int, lease_expires_at: int) -> dict[str, Any]:
    """The result of `call.claim` and `call.await` when the caller is to execute the call."""
    return {"status": "claimed", "fencingNumber": fencing_number, "leaseExpiresAt": lease_expires_at}
