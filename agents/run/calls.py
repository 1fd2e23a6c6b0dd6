"""Calls that are executed once within a run: claim, renew, publish, await (spec coordinator 4, wire 7).

A lease has run out when its time has come, but its fencing number holds until somebody else gets the next one: what
was executed under it may still be published. Who waits to take a lease gets it when it runs out or is released.
"""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.run import waits
from agents.run.refusals import attempt_superseded, is_superseded, run_ended
from agents.run.results import claimed_result, embed_outcome, hit_result, outcome_name, timeout_result
from agents.run.tables import CALL_RESULTS, CALLS, HEADS, UNKNOWN_RUN
from schemas.call_commands import CallAwait, CallClaim, CallPublish, CallRenew
from schemas.errors import ErrorCode
from schemas.json_codec import decode, encode, same_value
from schemas.stored import RunHead, replace
from schemas.stored_calls import StoredCall

CALL = "call"
"""What an answer holds by reference, with `value` or `error` and the call's number behind colons."""


def claim(request: Request[CallClaim], view: View) -> Decision:
    """`call.claim`: the published result, or the lease, or who has it."""
    run_id, command, now = request.key, request.command, request.now
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    if is_superseded(head, command):
        return attempt_superseded(head)
    call = view.get(CALLS, run_id, command.tool_id, command.input_hash)
    decision = Decision()
    if call is not None and call.ok is not None:
        result = hit_result(_outcome(view, run_id, call), ok=call.ok)
        name = outcome_name(ok=call.ok)
        return decision.succeed(result, **{name: f"{CALL}:{name}:{call.number}"})
    if call is not None and is_held(call, now):
        result = {"status": "pending", "owner": call.owner, "leaseExpiresAt": call.lease_expires_at}
        return decision.succeed(result)
    return decision.succeed(_take(decision, request, head, call, command.owner))


def renew(request: Request[CallRenew], view: View) -> Decision:
    """`call.renew`: the lease lasts longer, also one that had run out, unless another one holds by now."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    if is_superseded(head, command):
        return attempt_superseded(head)
    call = view.get(CALLS, run_id, command.tool_id, command.input_hash)
    if call is None or call.fencing_number != command.fencing_number or not call.lease_expires_at:
        return _fenced(call)
    expires_at = request.now + command.lease_ms
    decision = Decision()
    decision.put(CALLS, _key(request), replace(call, lease_expires_at=expires_at))
    if waits.waiting(view, run_id, head, _subject(request)).claimers:
        _pass_on_at(decision, call.number, expires_at, request)
    return decision.succeed({"leaseExpiresAt": expires_at})


def publish(request: Request[CallPublish], view: View) -> Decision:
    """`call.publish`: store the result and answer all who wait; or give a failed call back to be claimed."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.evicted:
        return run_ended(run_id, head, view)
    call = view.get(CALLS, run_id, command.tool_id, command.input_hash)
    if call is None or call.fencing_number != command.fencing_number:
        return _fenced(call)
    ok = command.error is None
    releases = not ok and command.on_failure == "release"
    if not call.lease_expires_at:
        return _published_before(view, run_id, call, command, releases=releases)
    if releases:
        return _release(request, view, head, call)
    outcome = encode(_told(command))
    decision = Decision()
    decision.put(CALL_RESULTS, (run_id, call.number), outcome)
    decision.put(CALLS, _key(request), replace(call, ok=ok, lease_expires_at=0, claimed_by=None))
    on = _subject(request)
    answered = waits.waiting(view, run_id, head, on).waits
    if answered:
        result = hit_result(outcome, ok=ok)
        head = waits.answer_subject(decision, view, run_id, head, on, result, len(outcome))
        decision.put(HEADS, (run_id,), head)
    return decision.succeed({"published": True, "answered": answered})


def await_call(request: Request[CallAwait], view: View) -> Decision:
    """`call.await`: the published result; when there is none yet, wait for it, or also for the lease."""
    run_id, command, now = request.key, request.command, request.now
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    call = None if head.evicted else view.get(CALLS, run_id, command.tool_id, command.input_hash)
    decision = Decision()
    if call is not None and call.ok is not None:
        return decision.succeed(hit_result(_outcome(view, run_id, call), ok=call.ok))
    if head.ended_at is not None:
        return decision.succeed(timeout_result())
    claims = None
    if command.claim and command.owner is not None:
        if is_superseded(head, command):
            return attempt_superseded(head)
        if call is None or not is_held(call, now):
            if request.reply_to is None:
                return decision  # Nobody would hear that the lease is theirs.
            return decision.succeed(_take(decision, request, head, call, command.owner))
        if call.claimed_by == command.command_id:  # The same again, since the answer was lost.
            return decision.succeed(claimed_result(call.fencing_number, call.lease_expires_at))
        claims = (command.owner, command.lease_ms, call.number)
    if command.timeout_ms <= 0:
        return decision.succeed(timeout_result())
    decision = waits.wait(request, view, head, _subject(request), command.timeout_ms, claims=claims)
    if claims is not None and call is not None and decision.changes:
        _pass_on_at(decision, call.number, call.lease_expires_at, request)
    return decision


def pass_on(timer: FiredTimer, view: View) -> Decision:
    """A lease that somebody waits for has run out: the longest waiting one gets it."""
    run_id, (tool_id, input_hash) = timer.key, timer.payload
    decision = Decision()
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    call = view.get(CALLS, run_id, tool_id, input_hash)
    if call is None or call.ok is not None:
        return decision
    if is_held(call, timer.now):
        decision.schedule(timer.name, call.lease_expires_at, timer.payload)
        return decision
    head = _give_to_the_longest_waiting(decision, view, head, (run_id, tool_id, input_hash), call, timer.now)
    decision.put(HEADS, (run_id,), head)
    return decision


def recall(reference: str, run_id: str, view: View) -> Any:
    """The published value or error that a reference names (what stands behind its first colon)."""
    name, _, number = reference.partition(":")
    outcome = view.get(CALL_RESULTS, run_id, int(number))
    return embed_outcome(outcome, ok=name == "value") if outcome is not None else None


def is_held(call: StoredCall, now: int) -> bool:
    """Whether somebody has a lease that has not run out."""
    return now < call.lease_expires_at


def _take(
    decision: Decision,
    request: Request[CallClaim] | Request[CallAwait],
    head: RunHead,
    call: StoredCall | None,
    owner: str,
) -> dict[str, Any]:
    """Give the lease of a call that nobody holds to the sender of the command; returns the result."""
    run_id, command = request.key, request.command
    if call is None:
        call = StoredCall(number=head.calls + 1, fencing_number=0)
        decision.put(HEADS, (run_id,), replace(head, status="running", calls=call.number))
    expires_at = request.now + command.lease_ms
    call = replace(
        call,
        fencing_number=call.fencing_number + 1,
        owner=owner,
        lease_expires_at=expires_at,
        claimed_by=command.command_id,
    )
    decision.put(CALLS, _key(request), call)
    return claimed_result(call.fencing_number, expires_at)


def _release(request: Request[CallPublish], view: View, head: RunHead, call: StoredCall) -> Decision:
    """The call failed and may be executed again: by the longest waiting one that would take the lease, if any."""
    decision = Decision()
    key, answered = _key(request), 0
    if waits.waiting(view, request.key, head, _subject(request)).claimers:
        head = _give_to_the_longest_waiting(decision, view, head, key, call, request.now)
        decision.put(HEADS, (request.key,), head)
        answered = 1
    else:
        decision.put(CALLS, key, replace(call, owner=None, lease_expires_at=0, claimed_by=None))
    return decision.succeed({"published": False, "answered": answered})


def _give_to_the_longest_waiting(
    decision: Decision, view: View, head: RunHead, key: tuple[str, str, str], call: StoredCall, now: int
) -> RunHead:
    """Pass a lease on to the one that has waited longest for it; returns the head without that wait."""
    run_id, *names = key
    on = waits.of_call(*names)
    answering = waits.Answering(decision, view, run_id, head)
    first = next(((at, waiter) for at, waiter in answering.waits(on) if waiter.owner is not None), None)
    if first is None:
        return head
    at, waiter = first
    expires_at = now + waiter.lease_ms
    number = call.fencing_number + 1
    answering.answer(at, waiter, claimed_result(number, expires_at))
    call = replace(
        call,
        fencing_number=number,
        owner=waiter.owner,
        lease_expires_at=expires_at,
        claimed_by=waiter.command_id,
    )
    decision.put(CALLS, key, call)
    head = answering.finish()
    if waits.waiting(view, run_id, head, on).claimers > 1:
        decision.schedule(f"{waits.LEASE}:{call.number}", expires_at, names)
    return head


def _published_before(
    view: View, run_id: str, call: StoredCall, command: CallPublish, *, releases: bool
) -> Decision:
    """The number holds, but its lease was given up: by this publish, or by another one?"""
    if call.ok is None:
        same = releases
    else:
        same = same_value(decode(_outcome(view, run_id, call)), _told(command))
    if not same:
        return _fenced(call)
    return Decision().succeed({"published": call.ok is not None, "answered": 0})


def _fenced(call: StoredCall | None) -> Decision:
    if call is None:
        message = "nobody has claimed this call; claim it before you execute it"
    elif call.ok is not None:
        message = f"the call's result was published under fencing number {call.fencing_number}"
    elif call.lease_expires_at:
        message = f"fencing number {call.fencing_number} holds; drop what you executed under another one"
    else:
        message = f"fencing number {call.fencing_number} was given up by a release; claim the call again"
    number = call.fencing_number if call is not None else 0
    return Decision().refuse(ErrorCode.CALL_FENCED, message, fencingNumber=number)


def _pass_on_at(
    decision: Decision, number: int, due: int, request: Request[CallRenew] | Request[CallAwait]
) -> None:
    names = [request.command.tool_id, request.command.input_hash]
    decision.schedule(f"{waits.LEASE}:{number}", due, names)


def _key(request: Request[Any]) -> tuple[str, str, str]:
    return request.key, request.command.tool_id, request.command.input_hash


def _subject(request: Request[Any]) -> str:
    return waits.of_call(request.command.tool_id, request.command.input_hash)


def _told(command: CallPublish) -> dict[str, Any]:
    """The outcome that a publish tells."""
    return {"value": command.value} if command.error is None else {"error": command.error}


def _outcome(view: View, run_id: str, call: StoredCall) -> bytes:
    outcome = view.get(CALL_RESULTS, run_id, call.number)
    if outcome is None:
        raise LookupError(f"the result of call {call.number} is missing, though it was published")
    return outcome
