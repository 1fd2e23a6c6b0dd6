"""`rate.acquire` and `rate.lease`: permits now, later, or not at all (spec coordinator 7, wire 7)."""

from __future__ import annotations

from agents.machine import Answer, Decision, Request, View
from agents.rate import refusals, turns
from agents.rate.bucket import MAX_STORED_RULES, Bucket
from agents.rate.counting import count_answer
from agents.rate.granting import Wish, grant, nothing
from agents.rate.tables import STORED_RULES, WAIT_PLACES
from schemas.rate_commands import RateAcquire, RateLease
from schemas.rate_rules import RateRule, limits_of
from schemas.stored_rates import Limit


def acquire(request: Request[RateAcquire], view: View) -> Decision:
    """`rate.acquire`: permits that are used when they are granted, in a lease when a rule has `maxConcurrency`."""
    return _ask(request, view, is_block=False)


def lease(request: Request[RateLease], view: View) -> Decision:
    """`rate.lease`: a block of permits that are used while the lease lasts."""
    return _ask(request, view, is_block=True)


def usable_limits(view: View, bucket_id: str, rules: list[RateRule] | None) -> tuple[Limit, ...] | None:
    """The rules that a command names, else those that are stored for the bucket; None when there are none."""
    if rules is not None:
        return limits_of(rules)
    stored = view.get(STORED_RULES, bucket_id)
    return (stored.limits or None) if stored is not None else None


def unreachable(limits: tuple[Limit, ...], minimum: int) -> Limit | None:
    """A rule that can never allow so many permits, if there is one."""
    for limit in limits:
        if limit.permits < minimum or 0 < limit.concurrency < minimum:
            return limit
    return None


def _ask(request: Request[RateAcquire] | Request[RateLease], view: View, *, is_block: bool) -> Decision:
    decision = _decide(request, view, is_block)
    if decision.answer is not None:
        count_answer(decision, decision.answer)
    return decision


def _decide(request: Request[RateAcquire] | Request[RateLease], view: View, is_block: bool) -> Decision:
    command, key, now, reply_to = request.command, request.key, request.now, request.reply_to
    limits = usable_limits(view, key, command.rules)
    if limits is None:
        return _repeat_of_waiting(request, view) or refusals.rules_required()
    requested = command.requested
    if not limits and not is_block:
        return Decision().succeed({"granted": requested, "waitMs": 0})
    minimum = min(command.minimum, requested)
    limit = unreachable(limits, minimum)
    if limit is not None:
        return _repeat_of_waiting(request, view) or refusals.never_granted(limit, minimum)
    bucket = Bucket(key, view, now)
    wish = Wish(command.command_id, now, limits, requested, minimum, command.lease_ms, is_block)
    if bucket.head.waiting:
        place = view.get(WAIT_PLACES, key, command.command_id)
        if place is not None:
            turns.answer_there_too(bucket, place, reply_to)
            return bucket.finish()
    else:
        count = bucket.grantable(limits, requested, minimum)
        if count:
            if not bucket.has_room(limits):
                return _refuse(refusals.too_many_rules(MAX_STORED_RULES))
            result = grant(bucket, wish, count)
            return bucket.finish().succeed(result)
    if not command.timeout_ms or reply_to is None:
        # Who cannot be reached does not wait: nobody would hear that the permits are theirs.
        return Decision().succeed(nothing(bucket, wish))
    run_id = command.run_id or ""
    refused = turns.is_full(bucket, run_id)
    if refused is not None:
        return refused
    turns.begin(bucket, wish, run_id, reply_to, command.timeout_ms)
    return bucket.finish()


def _repeat_of_waiting(request: Request[RateAcquire] | Request[RateLease], view: View) -> Decision | None:
    """What to do with a command that waits already, though the stored rules have changed since; else None."""
    place = view.get(WAIT_PLACES, request.key, request.command.command_id)
    if place is None:
        return None
    bucket = Bucket(request.key, view, request.now)
    turns.answer_there_too(bucket, place, request.reply_to)
    return bucket.finish()


def _refuse(answer: Answer) -> Decision:
    decision = Decision()
    decision.answer = answer
    return decision
