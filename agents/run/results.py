"""The results of the questions about a run, which are also the answers to those that waited (spec wire 3)."""

from __future__ import annotations

from typing import Any

from schemas.stored import RunHead

MAX_KEPT_EVENTS = 500


def first_kept(latest_seq: int) -> int:
    """`seq` of the oldest event that is kept; 0 when there is none."""
    return max(1, latest_seq - MAX_KEPT_EVENTS + 1) if latest_seq else 0


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


def status_result(
    run_id: str, head: RunHead, terminal: dict[str, Any] | None, *, trace: bool
) -> dict[str, Any]:
    """The result of `run.status`. `terminal` is the run's end, None before it and after the eviction."""
    end = terminal or {}
    result = {
        "runId": run_id,
        "status": head.status,
        "result": end.get("result"),
        "error": end.get("error"),
        "totalRows": end.get("totalRows"),
        "durationMs": end.get("durationMs"),
        "latestSeq": head.latest_seq,
    }
    if trace:
        result["traces"] = []
    return result
