"""Questions that wait: kept as state with a timer each, answered by what they wait for (spec wire 4).

Every wait on a run hangs on a subject: the run's events, its end, a child's result, a call. What happens to a
subject answers its waits, the longest waiting first; the run's end answers all; and a wait's timer answers it with
what there is by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agents.machine import AT_ONCE, Answer, Decision, FiredTimer, Request, View
from agents.run.results import child_result, events_result, hit_result, status_result, timeout_result
from agents.run.tables import (
    CALL_RESULTS,
    CALLS,
    CHILDREN,
    EVENTS,
    HEADS,
    TERMINALS,
    UNKNOWN_RUN,
    WAIT_GROUPS,
    WAITS,
)
from agents.run.traces import traces_beside
from schemas.errors import ErrorCode
from schemas.json_codec import decode, embed, encode
from schemas.replies import ReplyAddress
from schemas.stored import RunHead, RunWait, WaitGroup, replace

MAX_WAITS = 1000
"""Of all kinds, per run."""

MAX_ANSWERED_BYTES = 4 * 1024 * 1024
"""Of the answers that are made in one go; the waits that are left are answered right after, by their timers."""

TIMER = "wait"
LEASE = "lease"
"""The timer by which a call's lease passes on, for as long as somebody waits for it."""

NOBODY = WaitGroup()


def subject(kind: str, *names: str) -> str:
    """What waits hang on, as text: no two subjects have the same."""
    return encode([kind, *names]).decode()


OF_EVENTS = subject("events")
"""Its waits are in the order of the `seq` that answers them."""
OF_END = subject("terminal")

_CALL = subject("call", "")[: -len('""]')]
_CHILD = subject("child", "")[: -len('""]')]


def of_child(event_key: str) -> str:
    """The subject of those who wait for a child's result."""
    return subject("child", event_key)


def of_call(tool_id: str, input_hash: str) -> str:
    """The subject of those who wait for a call."""
    return subject("call", tool_id, input_hash)


def is_of_call(on: str) -> bool:
    """Whether a subject is a call."""
    return on.startswith(_CALL)


class WaitKey(NamedTuple):
    """Where a wait is stored."""

    run_id: str
    subject: str
    order: int
    number: int


def wait(
    request: Request[Any],
    view: View,
    head: RunHead,
    on: str,
    wait_ms: int,
    *,
    order: int = 0,
    trace: bool = False,
    claims: tuple[str, int, int] | None = None,
    sleeps: bool = False,
) -> Decision:
    """Let a question wait on a subject. `claims`: the call whose lease it would take: owner, lease in ms, number.

    `sleeps`: the run's own function waits.
    """
    decision = Decision()
    run_id, command, address = request.key, request.command, request.reply_to
    if address is None:
        return decision  # Nobody would hear the answer.
    if head.waits >= MAX_WAITS:
        return decision.refuse(
            ErrorCode.TOO_MANY_WAITS,
            f"{MAX_WAITS} commands wait on this run already; follow run-events instead",
        )
    owner, lease_ms, call = claims or (None, 0, 0)
    number = head.next_wait
    record = RunWait(
        kind=command.type,
        command_id=command.command_id,
        partition=address.partition,
        correlation_id=address.correlation_id,
        trace=trace,
        owner=owner,
        lease_ms=lease_ms,
        call=call,
        sleeps=sleeps,
    )
    group = view.get(WAIT_GROUPS, run_id, on) or NOBODY
    group = WaitGroup(waits=group.waits + 1, claimers=group.claimers + (owner is not None))
    decision.put(WAITS, WaitKey(run_id, on, order, number), record)
    decision.put(WAIT_GROUPS, (run_id, on), group)
    decision.put(HEADS, (run_id,), replace(head, waits=head.waits + 1, next_wait=number + 1))
    decision.schedule(f"{TIMER}:{number}", request.now + wait_ms, [on, order, number])
    return decision


def slept_for(view: View, run_id: str, head: RunHead) -> list[str]:
    """The names of the results for which the run's own function waits."""
    names: list[str] = []
    if not head.waits:
        return names
    for (_, on, _, _), record in view.scan(WAITS, run_id, start=(run_id, _CHILD)):
        if not on.startswith(_CHILD):
            break
        if record.sleeps:
            names.append(decode(on.encode())[1])
    return names


def waiting(view: View, run_id: str, head: RunHead, on: str) -> WaitGroup:
    """How many wait on a subject."""
    return (view.get(WAIT_GROUPS, run_id, on) if head.waits else None) or NOBODY


class Answering:
    """Answers waits of one run within one decision, and counts those that are left."""

    def __init__(self, decision: Decision, view: View, run_id: str, head: RunHead) -> None:
        self._decision = decision
        self._view = view
        self._run_id = run_id
        self._head = head
        self._bytes = 0
        self._answered = 0
        self._claims: dict[str, list[int]] = {}
        """Subject -> for each answered wait the number of the call whose lease it would have taken, or 0."""

    def waits(self, *on: str) -> Iterator[tuple[WaitKey, RunWait]]:
        """The waits on a subject, or on all, the longest waiting first."""
        for key, record in self._view.scan(WAITS, self._run_id, *on):
            yield WaitKey(*key), record

    def answer(self, key: WaitKey, record: RunWait, result: dict[str, Any], size: int = 0) -> None:
        """Answer a wait with a result of about so many bytes; put it off for a moment when it would be too much."""
        timer = f"{TIMER}:{key.number}"
        if self._answered and self._bytes + size > MAX_ANSWERED_BYTES:
            self._decision.schedule(timer, AT_ONCE, [key.subject, key.order, key.number])
            return
        self._decision.cancel(timer)
        self._decision.delete(WAITS, key)
        to = ReplyAddress(record.partition, record.correlation_id)
        self._decision.answer_late(to, record.command_id, Answer(True, result))
        self._bytes += size
        self._answered += 1
        self._claims.setdefault(key.subject, []).append(record.call)

    def finish(self) -> RunHead:
        """Store how many are left on each subject; returns the head that says so too, which is not stored yet."""
        decision, run_id = self._decision, self._run_id
        for on, calls in self._claims.items():
            group = self._view.get(WAIT_GROUPS, run_id, on) or NOBODY
            claimed = [call for call in calls if call]
            left = WaitGroup(waits=group.waits - len(calls), claimers=group.claimers - len(claimed))
            if left.waits > 0:
                decision.put(WAIT_GROUPS, (run_id, on), left)
            else:
                decision.delete(WAIT_GROUPS, (run_id, on))
            if claimed and left.claimers == 0:
                decision.cancel(f"{LEASE}:{claimed[0]}")
        return replace(self._head, waits=self._head.waits - self._answered)


def answer_event(decision: Decision, view: View, run_id: str, head: RunHead, event: bytes) -> RunHead:
    """Answer the waits that `event`, the run's latest, is for. `head` is the run as it is with the event."""
    if waiting(view, run_id, head, OF_EVENTS) is NOBODY:
        return head
    answering = Answering(decision, view, run_id, head)
    for key, record in answering.waits(OF_EVENTS):
        if key.order > head.latest_seq:
            break
        if key.order == head.latest_seq:  # An earlier event put the others off.
            answering.answer(key, record, events_result(head, [embed(event)]), len(event))
    return answering.finish()


def answer_subject(
    decision: Decision, view: View, run_id: str, head: RunHead, on: str, result: dict[str, Any], size: int
) -> RunHead:
    """Answer all waits on a subject with the same result, of about so many bytes."""
    if waiting(view, run_id, head, on) is NOBODY:
        return head
    answering = Answering(decision, view, run_id, head)
    for key, record in answering.waits(on):
        answering.answer(key, record, result, size)
    return answering.finish()


def answer_end(
    decision: Decision, view: View, run_id: str, head: RunHead, event: bytes, terminal: dict[str, Any]
) -> RunHead:
    """Answer all waits on a run: `event`, its latest, is its end. `head` is the run as it is with the event."""
    answering = Answering(decision, view, run_id, head)
    traced: tuple[dict[str, Any], int] | None = None
    for key, record in answering.waits():
        if record.kind == "run.status":
            result, size = status_result(run_id, head, terminal), len(event)
            if record.trace:
                traced = traced or traces_beside(view, run_id, head, event)
                result, size = result | traced[0], size + traced[1]
        elif record.kind != "events.list":
            result, size = _standing(view, head, key, record)
        elif key.order < head.latest_seq:
            continue  # An earlier event put it off.
        else:
            # A wait begins when it has seen all events, and the next one answers it: there is never another.
            result = events_result(head, [embed(event)] if key.order == head.latest_seq else [])
            size = len(event)
        answering.answer(key, record, result, size)
    return answering.finish()


def time_out(timer: FiredTimer, view: View) -> Decision:
    """Answer a wait, put off or timed out, with what there is; a head that only waits held goes with the last."""
    decision = Decision()
    run_id = timer.key
    key = WaitKey(run_id, *timer.payload)
    record = view.get(WAITS, *key)
    if record is None:
        return decision
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    answering = Answering(decision, view, run_id, head)
    answering.answer(key, record, *_standing(view, head, key, record))
    head = answering.finish()
    if head.status is None and not head.waits:
        decision.delete(HEADS, (run_id,))
    else:
        decision.put(HEADS, (run_id,), head)
    return decision


def _standing(view: View, head: RunHead, key: WaitKey, record: RunWait) -> tuple[dict[str, Any], int]:
    """What a wait is answered with as things stand, and its size."""
    run_id = key.run_id
    if record.kind == "run.status":
        stored = view.get(TERMINALS, run_id)
        terminal = decode(stored) if stored else None
        traces, size = traces_beside(view, run_id, head, stored) if record.trace else (None, 0)
        sleeps = slept_for(view, run_id, head)
        return status_result(run_id, head, terminal, traces, sleeps), len(stored or b"") + size
    if record.kind == "events.list":
        event = view.get(EVENTS, run_id, key.order)
        more = event is not None and key.order < head.latest_seq
        return events_result(head, [embed(event)] if event else [], more=more), len(event or b"")
    _, *names = decode(key.subject.encode())
    if record.kind == "child.terminal.await":
        state = view.get(CHILDREN, run_id, *names)
        return child_result(state), len(state or b"")
    call = view.get(CALLS, run_id, *names)
    outcome = (
        view.get(CALL_RESULTS, run_id, call.number) if call is not None and call.ok is not None else None
    )
    if call is None or outcome is None:
        return timeout_result(), 0
    return hit_result(outcome, ok=bool(call.ok)), len(outcome)
