"""What becomes of a run after its end: `run.finish`, the eviction, and being forgotten (spec wire 4)."""

from __future__ import annotations

from itertools import dropwhile
from typing import Any

from agents.machine import AT_ONCE, Decision, FiredTimer, Request, View
from agents.run.instances import evict_instance
from agents.run.launch import evict_launch_state
from agents.run.refusals import run_ended, run_not_found
from agents.run.results import first_kept
from agents.run.sessions import evict_sessions
from agents.run.tables import CALL_RESULTS, CALLS, CHILDREN, EVENTS, HEADS, TERMINALS, UNKNOWN_RUN
from agents.run.traces import evict_traces
from agents.tables import KeyPart, Table
from schemas.errors import ErrorCode
from schemas.run_commands import RunFinish
from schemas.stored import RunHead, replace
from schemas.topics import RUN_EVENTS

EVICTED_AFTER_END_MS = 24 * 60 * 60 * 1000
EVICTED_AFTER_FINISH_MS = 60 * 1000

FORGOTTEN_AFTER_MS = int(RUN_EVENTS.settings["retention.ms"])
"""As long as an event of the run may be on `run-events`, its `seq` must not start again."""

EVICT, SWEEP, FORGET = "evict", "sweep", "forget"

MAX_SWEPT_RECORDS = 500
MAX_SWEPT_BYTES = 4 * 1024 * 1024
"""Of what one step of an eviction reads and deletes: a run may have any number of calls and child results."""

_SWEPT: tuple[Table[Any], ...] = (CALLS, CHILDREN)
"""Tables of which a run may have any number of records; they are deleted in this order, step by step."""


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
    """Delete all but the end's time and status and the latest `seq`; the remembered answers go too.

    What a run may have any number of is not answered any more from now on, and deleted in steps.
    """
    run_id = timer.key
    decision = Decision()
    head = view.get(HEADS, run_id)
    if head is None or head.ended_at is None or head.evicted:
        return decision
    for seq in range(first_kept(head.latest_seq), head.latest_seq + 1):
        decision.delete(EVENTS, (run_id, seq))
    decision.delete(TERMINALS, (run_id,))
    evict_launch_state(decision, run_id)
    evict_sessions(decision, run_id)
    evict_instance(decision, run_id)
    evict_traces(decision, run_id, head)
    rest = RunHead(status=head.status, latest_seq=head.latest_seq, ended_at=head.ended_at, evicted=True)
    decision.put(HEADS, (run_id,), rest)
    decision.schedule(FORGET, timer.now + FORGOTTEN_AFTER_MS)
    decision.forgets = True
    _sweep(decision, view, run_id, _SWEPT[0].name, ())
    return decision


def sweep(timer: FiredTimer, view: View) -> Decision:
    """The next step of an eviction."""
    decision = Decision()
    table, *start = timer.payload
    _sweep(decision, view, timer.key, table, tuple(start))
    return decision


def forget(timer: FiredTimer, view: View) -> Decision:
    """Remove the last trace of an evicted run; its id may be used anew."""
    decision = Decision()
    head = view.get(HEADS, timer.key)
    if head is not None and head.evicted:
        decision.delete(HEADS, (timer.key,))
    return decision


def _sweep(decision: Decision, view: View, run_id: str, first_table: str, start: tuple[KeyPart, ...]) -> None:
    """Delete records from a key of a table on; what is left is the next step's."""
    records = size = 0
    for table in dropwhile(lambda table: table.name != first_table, _SWEPT):
        for key, record in view.scan(table, run_id, start=start or None):
            if records == MAX_SWEPT_RECORDS or size > MAX_SWEPT_BYTES:
                decision.schedule(SWEEP, AT_ONCE, [table.name, *key])
                return
            decision.delete(table, key)
            if table is CALLS and record.ok is not None:
                decision.delete(CALL_RESULTS, (run_id, record.number))
            records += 1
            size += len(record) if isinstance(record, bytes) else 0
        start = ()
