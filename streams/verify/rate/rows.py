"""The compact records of rate buckets: changes of their tables in the changelog, and what commands and answers say."""

from __future__ import annotations

from typing import NamedTuple

from streams.verify.spill import Channel


class HeadSeen(NamedTuple):
    """A change of a bucket's head."""

    key: int
    offset: int
    leases: int
    """How many leases it says there are; 0 when it was deleted."""
    waiting: int
    """How many commands it says wait."""
    partition: int


HEADS: Channel[HeadSeen] = Channel(HeadSeen, "qqqqH")


class LeaseSeen(NamedTuple):
    """A change of a lease, at one of the places where it was stored: by when it expires."""

    key: int
    number: int
    """Its fencing number, which no other lease of the bucket has."""
    expires_at: int
    offset: int
    is_open: int


LEASES: Channel[LeaseSeen] = Channel(LeaseSeen, "qqqqB")


class KeptSeen(NamedTuple):
    """A change of a grant without a lease."""

    key: int
    command: int
    """Id of the command that got it."""
    granted_at: int
    """0 when it was deleted."""


KEPT: Channel[KeptSeen] = Channel(KeptSeen, "qqq")


class WaitSeen(NamedTuple):
    """A change of a command that waits."""

    key: int
    wait: int
    """Its place in the table."""
    command: int
    """`NOTHING` when it was answered."""


WAITS: Channel[WaitSeen] = Channel(WaitSeen, "qqq")


class GrantSeen(NamedTuple):
    """What the changelog has stored of a grant, for one of the rules that it was taken from."""

    key: int
    grant: int
    """Number of its lease, or the id of the command that got it when there is none."""
    granted_at: int
    expires_at: int
    """0 when there is no lease."""
    permits: int
    offset: int
    rule: int
    """Names what is counted: rule id, kind and window."""
    window_ms: int
    most: int
    """What the rule allowed then."""
    concurrency: int
    kind: int
    """See `KINDS`."""
    is_block: int


KINDS = ("window", "sliding", "bucket")
GRANTS: Channel[GrantSeen] = Channel(GrantSeen, "qqqqqqqqqqBB")


class StartSeen(NamedTuple):
    """Where a window began when the state of its rule was stored."""

    key: int
    rule: int
    start: int
    window_ms: int
    offset: int


STARTS: Channel[StartSeen] = Channel(StartSeen, "qqqqq")


class ToldSeen(NamedTuple):
    """A grant as the answer has it that the changelog remembers."""

    key: int
    grant: int
    """As in `GrantSeen`."""
    granted_at: int
    expires_at: int
    permits: int
    offset: int


TOLD: Channel[ToldSeen] = Channel(ToldSeen, "qqqqqq")


class EndSeen(NamedTuple):
    """A command that ends a grant, or says how much of it was used."""

    key: int
    grant: int
    """As in `GrantSeen`."""
    offset: int
    """Of the command."""
    used: int
    """-1: all of it."""


ENDS: Channel[EndSeen] = Channel(EndSeen, "qqqq")


class TimerSeen(NamedTuple):
    """A change of the timer that ends a bucket's leases."""

    key: int
    due: int
    """-1: it is not set."""


TIMERS: Channel[TimerSeen] = Channel(TimerSeen, "qq")
