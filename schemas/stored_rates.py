"""What a lane stores about rate buckets; see `schemas.stored`."""

from __future__ import annotations

import msgspec

from schemas.stored import Stored


class Limit(msgspec.Struct, frozen=True, array_like=True):
    """A usable rule in whole numbers. `rule_id`, `kind` and `window_ms` name the state that it is counted in."""

    rule_id: str
    kind: str
    """`window`, `sliding` or `bucket`."""
    window_ms: int
    """0: the rule never fills."""
    permits: int
    """At most so many per window."""
    concurrency: int = 0
    """At most so many permits in leases at a time; 0: no bound."""


class Address(msgspec.Struct, frozen=True, array_like=True):
    """A reply address."""

    partition: int
    correlation_id: bytes
    """In base64 where it is stored."""


class RuleState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is counted for one rule. What `start`, `used`, `rest` and `slots` mean is the kind's: see
    `agents.rate.windows`."""

    permits: int
    """The limit of the last command that was granted something by the rule."""
    concurrency: int = 0
    """Likewise; 0: no bound."""
    start: int = 0
    used: int = 0
    rest: int = 0
    slots: tuple[int, ...] = ()
    reserved: int = 0
    """Permits in blocks that have not ended."""
    held: int = 0
    """Permits in leases that count against `concurrency`."""


class BucketHead(Stored, frozen=True):
    """What is known of a bucket besides its leases, grants and waits. Table `rate.bucket`, key (bucket id)."""

    next_number: int
    """Number of the next lease, wait or turn; never reused, also when the bucket was forgotten meanwhile."""
    cooldown_until: int = 0
    """No grant before this time, in milliseconds since the epoch."""
    rules: dict[str, RuleState] = {}
    """What is counted, by the name of the rule (`agents.rate.counters.rule_name`). Together with the rest, since every
    grant changes all of it: one record instead of several is read, written and restored."""
    leases: int = 0
    """How many leases have not ended."""
    expires_at: int = 0
    """When the timer that ends leases is due; 0 when it is not set."""
    waiting: int = 0
    """How many commands wait for permits."""
    turn: int = 0
    """Tag of the turn that was served last; see `agents.rate.turns`."""
    first_tag: int = 0
    """Tag of the turn that is served next, when somebody waits."""
    first_number: int = 0
    """Number of the turn that is served next."""
    grants: int = 0
    """How many grants without a lease were made; number of the newest."""
    lost_leases: int = 0
    """How many blocks of permits ran out unsettled."""
    lost_permits: int = 0
    """How many permits they had: whether they were used is not known, so they count as used."""


class StoredLease(Stored, frozen=True):
    """A lease. Table `rate.lease`, key (bucket id, when it expires, number); its id is made of the last two."""

    permits: int
    granted_at: int
    """In milliseconds since the epoch."""
    limits: tuple[Limit, ...]
    """The rules that it was charged to."""
    is_block: bool = False
    """Its permits are used while it lasts, and charged when it ends."""
    first_expires_at: int = 0
    """When it was to expire before it was renewed first, which is in its id; 0 when it never was."""


class StoredRenewal(Stored, frozen=True):
    """Where a renewed lease is. Table `rate.renewal`, key (bucket id, when it was to expire at first, number)."""

    expires_at: int


class StoredGrant(Stored, frozen=True):
    """A grant without a lease, for as long as it may be settled. Table `rate.grant`, key (bucket id, command id)."""

    number: int
    """Position among the bucket's grants without a lease, from 1."""
    permits: int
    granted_at: int
    """In milliseconds since the epoch."""
    limits: tuple[Limit, ...]
    """The rules that it was charged to."""


class RateWait(Stored, frozen=True):
    """A command that waits for permits. Table `rate.wait`, key (bucket id, run id, number)."""

    command_id: str
    addresses: tuple[Address, ...]
    """Where the answer goes: one for each time that the command was sent."""
    asked_at: int
    """Time of the command, in milliseconds since the epoch."""
    limits: tuple[Limit, ...]
    requested: int
    minimum: int
    """It is served when so many can be granted."""
    lease_ms: int
    is_block: bool = False


class RateWaitPlace(Stored, frozen=True):
    """Where a waiting command is. Table `rate.wait_place`, key (bucket id, command id)."""

    run_id: str
    number: int


class RateQueue(Stored, frozen=True):
    """The waiting commands of one run. Table `rate.queue`, key (bucket id, run id or empty)."""

    waiting: int
    tag: int
    """Of its turn."""
    number: int
    """Of its turn."""


class RateTurn(Stored, frozen=True):
    """A run's turn. Table `rate.turn`, key (bucket id, tag, number), in the order in which turns are served."""

    run_id: str


class StoredRules(Stored, frozen=True):
    """The rules that a bucket has for commands that name none. Table `rate.rules`, key (bucket id)."""

    version: int
    """From 1; one more with every change."""
    applied_at: int
    """In milliseconds since the epoch."""
    limits: tuple[Limit, ...] = ()
    """None: the rules were removed."""
