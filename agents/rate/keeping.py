"""What a bucket keeps besides its permits: cooldowns, stored rules, and how it is forgotten (spec coordinator 7)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.rate import refusals
from agents.rate.bucket import SWEEP, SWEEP_EVERY_MS, Bucket
from agents.rate.counting import PENALTIES
from agents.rate.granting import prune_grants
from agents.rate.tables import BUCKETS, STORED_RULES
from agents.rate.turns import serve
from schemas.rate_commands import RatePenalize, RateRulesGet, RateRulesPut
from schemas.rate_rules import limits_of
from schemas.stored_rates import Limit, StoredRules


def penalize(request: Request[RatePenalize], view: View) -> Decision:
    """`rate.penalize`: no grant before the cooldown is over; the longest cooldown counts."""
    bucket = Bucket(request.key, view, request.now)
    until = bucket.head.cooldown_until
    cooldown_ms = request.command.cooldown_ms
    if cooldown_ms > 0 and request.now + cooldown_ms > until:
        until = request.now + cooldown_ms
        bucket.update(cooldown_until=until)
        bucket.decision.count(PENALTIES)
        serve(bucket)
    return bucket.finish().succeed({"cooldownUntil": until})


def put_rules(request: Request[RateRulesPut], view: View) -> Decision:
    """`rate.rules.put`: the bucket's rules for commands that name none."""
    command, key = request.command, request.key
    stored = view.get(STORED_RULES, key) or StoredRules(version=0, applied_at=0)
    if command.expected_version is not None and command.expected_version != stored.version:
        return refusals.rules_changed(stored.version)
    limits = limits_of(command.rules)
    decision = Decision()
    if limits == stored.limits:
        return decision.succeed({"version": stored.version, "changed": False})
    version = stored.version + 1
    rules = StoredRules(version=version, applied_at=request.now, limits=limits)
    decision.put(STORED_RULES, (key,), rules)
    return decision.succeed({"version": version, "changed": True})


def get_rules(request: Request[RateRulesGet], view: View) -> Decision:
    """`rate.rules.get`: the stored rules, as they are counted."""
    stored = view.get(STORED_RULES, request.key) or StoredRules(version=0, applied_at=0)
    rules = [_rule(limit) for limit in stored.limits]
    return Decision().succeed({"version": stored.version, "appliedAt": stored.applied_at, "rules": rules})


def sweep(timer: FiredTimer, view: View) -> Decision:
    """Forget what says nothing any more, in the end the bucket; its stored rules stay."""
    bucket = Bucket(timer.key, view, timer.now)
    keeps_grants = prune_grants(bucket)
    bucket.forget_idle_rules()
    head = bucket.head
    if keeps_grants or head.rules or head.leases or head.waiting or head.cooldown_until > timer.now:
        bucket.decision.schedule(SWEEP, timer.now + SWEEP_EVERY_MS)
        return bucket.finish()
    bucket.decision.delete(BUCKETS, (timer.key,))
    return bucket.decision


def _rule(limit: Limit) -> dict[str, Any]:
    return {
        "ruleId": limit.rule_id,
        "kind": limit.kind,
        "windowMs": limit.window_ms,
        "requestsPerWindow": limit.permits,
        "maxConcurrency": limit.concurrency or None,
    }
