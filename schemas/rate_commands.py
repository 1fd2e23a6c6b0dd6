"""The commands of the topic `rate-commands`, keyed by bucket id (spec coordinator 7 and 10, wire 7)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, TypeAdapter, model_validator

from schemas import topics
from schemas.commands import Command, CommandSet
from schemas.lenient import OrDefault, Text, clamped
from schemas.names import Name
from schemas.rate_rules import MAX_PERMITS, Rules, StrictRules

DEFAULT_LEASE_MS = 300_000
DEFAULT_BLOCK_MS = 10_000
MAX_LEASE_MS = 3_600_000
MAX_WAIT_MS = 300_000
MAX_COOLDOWN_MS = 366 * 86_400_000

Permits = clamped(1, MAX_PERMITS, 1)
WaitMs = clamped(0, MAX_WAIT_MS, 0)
Run = Annotated[Name | None, OrDefault()]


def _limited(low: int) -> BeforeValidator:
    def limit(number: Any) -> int:
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError("Input should be a number")
        return int(min(max(low, number), MAX_PERMITS))

    return BeforeValidator(limit)


class RateCommand(Command):
    """A command about one bucket; `bucketId` (`<orgId>:<provider>`) equals the record's key."""

    bucket_id: str


class _Ask(RateCommand):
    rules: Rules = None
    """The bucket's rules, at most 32. Left out: those that were stored by `rate.rules.put`. A rule without a string
    `ruleId`, a positive `requestsPerWindow` or a numeric `windowMs` is ignored; without a usable rule all is
    granted."""


class RateAcquire(_Ask):
    """Get permits: as many as every rule allows, at most `requested`, taken from all rules or from none."""

    type: Literal["rate.acquire"]
    requested: Permits = 1  # type: ignore[valid-type]
    """How many permits are wanted, 1 to 10^12; what a call costs, if calls have weights."""
    minimum: Permits = 1  # type: ignore[valid-type]
    """Fewer than this are granted as none; at most `requested`."""
    run_id: Run = None
    """Which run asks, 1..512 bytes of UTF-8: permits are shared fairly among the runs that wait."""
    timeout_ms: WaitMs = 0  # type: ignore[valid-type]
    """How long to wait for permits in the bucket's queue, limited to 0..300000 ms."""
    lease_ms: clamped(1000, MAX_LEASE_MS, DEFAULT_LEASE_MS) = DEFAULT_LEASE_MS  # type: ignore[valid-type]
    """With a rule that has `maxConcurrency`: how long the lease lasts, limited to 1000..3600000 ms."""


class RateLease(_Ask):
    """Get a block of permits to use without asking again, until it expires or is settled or released.

    A block counts against the rules as long as it lasts, and what was used of it from its end on: so calls never
    exceed a rule, whenever within the block's life they are made.
    """

    type: Literal["rate.lease"]
    requested: Annotated[int, _limited(1)]
    """How many permits are wanted, limited to 1..10^12."""
    minimum: Permits = 1  # type: ignore[valid-type]
    """Fewer than this are granted as none; at most `requested`."""
    run_id: Run = None
    """Which run asks; see `rate.acquire`."""
    timeout_ms: WaitMs = 0  # type: ignore[valid-type]
    """How long to wait for permits in the bucket's queue, limited to 0..300000 ms."""
    lease_ms: clamped(1000, MAX_LEASE_MS, DEFAULT_BLOCK_MS) = DEFAULT_BLOCK_MS  # type: ignore[valid-type]
    """How long the block lasts, limited to 1000..3600000 ms."""


class RateRenew(RateCommand):
    """Let a lease last longer: `leaseMs` from now on, and never shorter than it would have. Its id stays the same."""

    type: Literal["rate.renew"]
    lease_id: str
    """From the grant."""
    fencing_number: Annotated[int, Field(ge=1)]
    """From the grant."""
    lease_ms: clamped(1000, MAX_LEASE_MS, DEFAULT_LEASE_MS) = DEFAULT_LEASE_MS  # type: ignore[valid-type]
    """How long the lease lasts from now on, limited to 1000..3600000 ms."""


class RateRelease(RateCommand):
    """End a lease: its permits may be held by others. What it was charged stays charged."""

    type: Literal["rate.release"]
    lease_id: str
    """From the grant."""
    fencing_number: Annotated[int, Field(ge=1)]
    """From the grant."""


class RateSettle(RateCommand):
    """Say how many permits were used: the rest comes back, or what is missing is charged. A lease ends with it."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": ["leaseId"]}, {"required": ["acquireCommandId"]}]}
    )

    type: Literal["rate.settle"]
    lease_id: Text = None
    """The lease that is settled; either this or `acquireCommandId`."""
    acquire_command_id: Text = None
    """The `commandId` of the acquire that is settled, when it got no lease. The newest 5,000 of a bucket can be."""
    used: Annotated[int, _limited(0)]
    """How many permits were used in the end, limited to 0..10^12."""

    @model_validator(mode="after")
    def _one_grant(self) -> RateSettle:
        if (self.lease_id is None) is (self.acquire_command_id is None):
            raise ValueError("give the text leaseId or the text acquireCommandId, one of them")
        return self


class RatePenalize(RateCommand):
    """Let nobody have permits for a while, as the provider asked; a shorter cooldown never shortens a longer one."""

    type: Literal["rate.penalize"]
    cooldown_ms: clamped(0, MAX_COOLDOWN_MS, 0) = 0  # type: ignore[valid-type]
    """For how long, in ms, at most a year; 0 or less does nothing."""


class RatePeek(_Ask):
    """Ask what an acquire would get now, and how the bucket stands."""

    is_question: ClassVar[bool] = True

    type: Literal["rate.peek"]
    requested: Permits = 1  # type: ignore[valid-type]
    """As of `rate.acquire`."""
    minimum: Permits = 1  # type: ignore[valid-type]
    """As of `rate.acquire`."""


class RateRulesPut(RateCommand):
    """Store the bucket's rules, for commands that name none. An empty list removes them."""

    type: Literal["rate.rules.put"]
    rules: StrictRules
    """All of the bucket's rules, at most 32; each must be usable."""
    expected_version: Annotated[int | None, OrDefault()] = None
    """Refuse (`RATE_RULES_CHANGED`) when the stored rules have another version; 0 when there are none yet."""


class RateRulesGet(RateCommand):
    """Ask for the rules that are stored for the bucket."""

    is_question: ClassVar[bool] = True

    type: Literal["rate.rules.get"]


MODELS: tuple[type[Command], ...] = (
    RateAcquire,
    RateLease,
    RateRenew,
    RateRelease,
    RateSettle,
    RatePenalize,
    RatePeek,
    RateRulesPut,
    RateRulesGet,
)

AnyRateCommand: Any = Annotated[Union[(*MODELS,)], Discriminator("type")]

RATE_COMMANDS = CommandSet(
    topic=topics.RATE_COMMANDS.name,
    id_field=topics.RATE_COMMANDS.id_field or "",
    models=MODELS,
    adapter=TypeAdapter(AnyRateCommand),
)
