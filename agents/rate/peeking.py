"""`rate.peek`: what an acquire would get now, and how the bucket stands (spec coordinator 7, wire 7)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, Request, View
from agents.rate import refusals
from agents.rate.acquiring import unreachable, usable_limits
from agents.rate.bucket import Bucket
from agents.rate.counters import Counter, rule_of
from agents.rate.windows import used_of
from schemas.rate_commands import RatePeek
from schemas.stored_rates import Limit


def peek(request: Request[RatePeek], view: View) -> Decision:
    """`rate.peek`: changes nothing. Without rules, those that are stored or, failing that, all that are counted."""
    command, key = request.command, request.key
    bucket = Bucket(key, view, request.now)
    limits = usable_limits(view, key, command.rules)
    if limits is None:
        limits = tuple(rule_of(name, state) for name, state in bucket.head.rules.items())
    minimum = min(command.minimum, command.requested)
    limit = unreachable(limits, minimum)
    if limit is not None:
        return refusals.never_granted(limit, minimum)
    head = bucket.head
    granted = command.requested
    if limits:
        granted = 0 if head.waiting else bucket.grantable(limits, command.requested, minimum)
    return Decision().succeed(
        {
            "granted": granted,
            "waitMs": 0 if granted else bucket.wait_ms(limits, minimum),
            "cooldownUntil": head.cooldown_until,
            "rules": [_use(bucket, limit, counter) for limit, counter in bucket.counters(limits)],
            "waiting": head.waiting,
            "leases": head.leases,
            "lostLeases": head.lost_leases,
            "lostPermits": head.lost_permits,
        }
    )


def _use(bucket: Bucket, limit: Limit, counter: Counter) -> dict[str, Any]:
    state, kind = counter.state, counter.kind
    used = used_of(state)
    return {
        "ruleId": limit.rule_id,
        "kind": limit.kind,
        "windowMs": limit.window_ms,
        "limit": limit.permits,
        "used": used + state.reserved,
        "resetsAt": kind.returned_at(limit, state, used, bucket.now) if used else bucket.now,
        "reserved": state.reserved,
        "maxConcurrency": limit.concurrency or None,
        "held": state.held,
    }
