"""Questions that wait: kept as state with a timer each, answered by what they wait for (spec wire 4)."""

from __future__ import annotations

from typing import Any

from agents.machine import Answer, Decision, FiredTimer, Request, View
from agents.run.results import events_result, status_result
from agents.run.tables import EVENTS, HEADS, TERMINALS, UNKNOWN_RUN, WAITS
from schemas.errors import ErrorCode
from schemas.json_codec import decode, embed
from schemas.replies import ReplyAddress
from schemas.run_commands import EventsList, RunStatus
from schemas.stored import RunHead, RunWait, replace

MAX_WAITS = 1000
"""Of all kinds, per run."""

ONLY_THE_END = 2**63
"""Instead of the `seq` that answers a wait: greater than any."""

MAX_ANSWERED_BYTES = 4 * 1024 * 1024
"""Of the answers that one event makes in one go; the waits that are left are answered right after, by their timers."""

AT_ONCE = 0

TIMER = "wait"


def wait_for_event(request: Request[EventsList], head: RunHead) -> Decision:
    """Let `events.list` wait for the first event that it has not seen."""
    return _wait(request, head, request.command.after_seq + 1, request.command.timeout_ms)


def wait_for_end(request: Request[RunStatus], head: RunHead, *, trace: bool) -> Decision:
    """Let `run.status` wait for the run's end."""
    return _wait(request, head, ONLY_THE_END, request.command.wait_ms, trace=trace)


def _wait(
    request: Request[EventsList] | Request[RunStatus],
    head: RunHead,
    answered_by: int,
    wait_ms: int,
    *,
    trace: bool = False,
) -> Decision:
    decision = Decision()
    address = request.reply_to
    if address is None:
        return decision  # Nobody would hear the answer.
    if head.waits >= MAX_WAITS:
        return decision.refuse(
            ErrorCode.TOO_MANY_WAITS,
            f"{MAX_WAITS} commands wait on this run already; follow run-events instead",
        )
    number, command = head.next_wait, request.command
    wait = RunWait(
        kind=command.type,
        command_id=command.command_id,
        partition=address.partition,
        correlation_id=address.correlation_id,
        trace=trace,
    )
    decision.put(WAITS, (request.key, answered_by, number), wait)
    decision.put(HEADS, (request.key,), replace(head, waits=head.waits + 1, next_wait=number + 1))
    decision.schedule(f"{TIMER}:{number}", request.now + wait_ms, [answered_by, number])
    return decision


def answer_waits(
    decision: Decision,
    view: View,
    run_id: str,
    head: RunHead,
    event: bytes,
    terminal: dict[str, Any] | None = None,
) -> RunHead:
    """Answer the waits that `event`, the run's latest, is for; all of them when it is the end (`terminal`).

    `head` is the run as it is with the event; returns it without the waits that were answered. When many wait for
    a large answer, most are put off for a moment, so that no transaction grows beyond bounds.
    """
    answered = 0
    for (_, answered_by, number), wait in view.scan(WAITS, run_id):
        if answered_by < head.latest_seq:
            continue  # An earlier event put it off.
        awaited = answered_by == head.latest_seq
        if not awaited and terminal is None:
            break
        if answered and (answered + 1) * len(event) > MAX_ANSWERED_BYTES:
            decision.schedule(f"{TIMER}:{number}", AT_ONCE, [answered_by, number])
            continue
        if wait.kind == "run.status":
            result = status_result(run_id, head, terminal, trace=wait.trace)
        else:
            # A wait begins when it has seen all events, and the next one answers it: there is never another.
            result = events_result(head, [embed(event)] if awaited else [])
        _answer(decision, run_id, answered_by, number, wait, result)
        decision.cancel(f"{TIMER}:{number}")
        answered += 1
    return replace(head, waits=head.waits - answered)


def time_out(timer: FiredTimer, view: View) -> Decision:
    """Answer a wait, put off or timed out, with what there is; a head that only waits held goes with the last."""
    decision = Decision()
    run_id = timer.key
    answered_by, number = timer.payload
    wait = view.get(WAITS, run_id, answered_by, number)
    if wait is None:
        return decision
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if wait.kind == "run.status":
        terminal = view.get(TERMINALS, run_id)
        result = status_result(run_id, head, decode(terminal) if terminal else None, trace=wait.trace)
    else:
        event = view.get(EVENTS, run_id, answered_by)
        more = event is not None and answered_by < head.latest_seq
        result = events_result(head, [embed(event)] if event is not None else [], more=more)
    _answer(decision, run_id, answered_by, number, wait, result)
    if head.status is None and head.waits == 1:
        decision.delete(HEADS, (run_id,))
    else:
        decision.put(HEADS, (run_id,), replace(head, waits=head.waits - 1))
    return decision


def _answer(
    decision: Decision, run_id: str, answered_by: int, number: int, wait: RunWait, result: dict[str, Any]
) -> None:
    decision.delete(WAITS, (run_id, answered_by, number))
    to = ReplyAddress(wait.partition, wait.correlation_id)
    decision.answer_late(to, wait.command_id, Answer(True, result))
