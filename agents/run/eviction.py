"""What becomes of a run after its end: `run.finish`, the eviction, and being forgotten (spec wire 4)."""

from __future__ import annotations

from agents.machine import Decision, FiredTimer, Request, View
from agents.run.refusals import run_ended, run_not_found
from agents.run.results import first_kept
from agents.run.tables import EVENTS, HEADS, TERMINALS, UNKNOWN_RUN
from schemas.errors import ErrorCode
from schemas.run_commands import RunFinish
from schemas.stored import RunHead, replace
from schemas.topics import RUN_EVENTS

EVICTED_AFTER_END_MS = 24 * 60 * 60 * 1000
EVICTED_AFTER_FINISH_MS = 60 * 1000

FORGOTTEN_AFTER_MS = int(RUN_EVENTS.settings["retention.ms"])
"""As long as an event of the run may be on `run-events`, its `seq` must not start again."""

EVICT, FORGET = "evict", "forget"


def schedule_eviction(decision: Decision, ended_at: int) -> None:
    """A run that nobody finishes is evicted by itself."""
    decision.schedule(EVICT, ended_at + EVICTED_AFTER_END_MS)


def finish(request: Request[RunFinish], view: View) -> Decision:
    """`run.finish`: evict an ended run soon; again, it names the same time."""
    run_id = request.key
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.status is None:
        return run_not_found()
    decision = Decision()
    if head.ended_at is None:
        return decision.refuse(
            ErrorCode.RUN_NOT_ENDED, "the run has not ended; end it with terminal.set or run.cancel first"
        )
    if head.evicted:
        return run_ended(run_id, head, view)
    if head.evicts_at is not None:
        return decision.succeed({"evictsAt": head.evicts_at})
    evicts_at = request.now + EVICTED_AFTER_FINISH_MS
    decision.put(HEADS, (run_id,), replace(head, evicts_at=evicts_at))
    decision.schedule(EVICT, evicts_at)
    return decision.succeed({"evictsAt": evicts_at})


def evict(timer: FiredTimer, view: View) -> Decision:
    """Delete all but the end's time and status and the latest `seq`; the remembered answers go too."""
    run_id = timer.key
    decision = Decision()
    head = view.get(HEADS, run_id)
    if head is None or head.ended_at is None or head.evicted:
        return decision
    for seq in range(first_kept(head.latest_seq), head.latest_seq + 1):
        decision.delete(EVENTS, (run_id, seq))
    decision.delete(TERMINALS, (run_id,))
    rest = RunHead(status=head.status, latest_seq=head.latest_seq, ended_at=head.ended_at, evicted=True)
    decision.put(HEADS, (run_id,), rest)
    decision.schedule(FORGET, timer.now + FORGOTTEN_AFTER_MS)
    decision.forgets = True
    return decision


def forget(timer: FiredTimer, view: View) -> Decision:
    """Remove the last trace of an evicted run; its id may be used anew."""
    decision = Decision()
    head = view.get(HEADS, timer.key)
    if head is not None and head.evicted:
        decision.delete(HEADS, (timer.key,))
    return decision
