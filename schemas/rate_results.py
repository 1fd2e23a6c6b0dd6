"""What the commands of `rate-commands` answer: the `result` of a reply, by command (spec wire 7)."""

from __future__ import annotations

from typing import Final

from schemas.rate_rules import Kind
from schemas.results import Result


class AcquireResult(Result):
    """`rate.acquire`, `rate.lease`: how many permits were granted, and the lease that they are in, if any."""

    granted: int
    """How many permits the sender has; 0: none."""
    wait_ms: int
    """When none were granted: ask again after so many ms, at least 10; else 0."""
    granted_at: int | None = None
    """When the permits were taken from the rules, in ms since the epoch by the broker's clock."""
    lease_id: str | None = None
    """Names the lease in `rate.release` and `rate.settle`. An acquire has one when a rule has `maxConcurrency`."""
    fencing_number: int | None = None
    """Of the lease; within a bucket it only grows."""
    expires_at: int | None = None
    """Until when the lease lasts, in ms since the epoch by the broker's clock."""
    valid_ms: int | None = None
    """The same without a clock: the lease lasts so many ms from the moment at which the command was sent."""


class RenewResult(Result):
    """`rate.renew`: whether the lease goes on, and until when."""

    renewed: bool
    """False when it had ended before: others may have its permits."""
    expires_at: int | None = None
    """Until when the lease lasts, in ms since the epoch by the broker's clock."""
    valid_ms: int | None = None
    """The same without a clock: the lease lasts so many ms from the moment at which the command was sent."""


class ReleaseResult(Result):
    """`rate.release`: whether the lease was ended by this."""

    released: bool
    """False when it had ended before."""


class SettleResult(Result):
    """`rate.settle`: the difference between what was granted and what was used."""

    refunded: int
    """Permits that were granted and not used."""
    charged: int
    """Permits that were used and not granted."""


class PenalizeResult(Result):
    """`rate.penalize`: until when nobody gets permits."""

    cooldown_until: int
    """In ms since the epoch; 0 when there was no cooldown yet."""


class RuleUse(Result):
    """How one rule stands."""

    rule_id: str
    """Names the rule."""
    kind: Kind
    """Kind of rule."""
    window_ms: int
    """Length of its window; 0: it never fills."""
    limit: int
    """Permits per window."""
    used: int
    """Permits that count in the present window, those in blocks included."""
    resets_at: int
    """When all of `used` but the permits in blocks has come back, in ms since the epoch."""
    reserved: int
    """Of `used`: permits in blocks that have not ended."""
    max_concurrency: int | None = None
    """How many permits may be in leases at a time."""
    held: int
    """How many permits are in leases that count against `maxConcurrency`."""


class PeekResult(Result):
    """`rate.peek`: what an acquire would get now, and how the bucket stands."""

    granted: int
    """What an acquire would be granted."""
    wait_ms: int
    """What it would be told to wait."""
    cooldown_until: int
    """Until when nobody gets permits, in ms since the epoch; 0 when there was no cooldown."""
    rules: list[RuleUse]
    """The rules of the question; when it names none and none are stored, all that are counted."""
    waiting: int
    """How many commands wait for permits."""
    leases: int
    """How many leases have not ended."""
    lost_leases: int
    """How many blocks of permits ran out unsettled since the bucket is known."""
    lost_permits: int
    """How many permits those had; they count as used."""


class StoredRule(Result):
    """A stored rule, as it is counted."""

    rule_id: str
    """Names the rule."""
    kind: Kind
    """Kind of rule."""
    window_ms: int
    """Length of its window; 0: it never fills."""
    requests_per_window: int
    """Permits per window."""
    max_concurrency: int | None = None
    """How many permits may be in leases at a time."""


class RulesPutResult(Result):
    """`rate.rules.put`: the version that the rules have now."""

    version: int
    """From 1; one more with every change."""
    changed: bool
    """False when these rules were stored already."""


class RulesGetResult(Result):
    """`rate.rules.get`: the stored rules."""

    version: int
    """0 when none were ever stored."""
    applied_at: int
    """When they were stored, in ms since the epoch; 0 when none were ever stored."""
    rules: list[StoredRule]
    """Empty when none are stored."""


RATE_RESULTS: Final[dict[str, type[Result]]] = {
    "rate.acquire": AcquireResult,
    "rate.lease": AcquireResult,
    "rate.renew": RenewResult,
    "rate.release": ReleaseResult,
    "rate.settle": SettleResult,
    "rate.penalize": PenalizeResult,
    "rate.peek": PeekResult,
    "rate.rules.put": RulesPutResult,
    "rate.rules.get": RulesGetResult,
}
"""The result of every command of `rate-commands`."""
