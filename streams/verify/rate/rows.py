"""The compact records of rate buckets: changes of their tables in the changelog."""

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
    """A change of a lease."""

    key: int
    lease: int
    """Its place in the table."""
    is_open: int


LEASES: Channel[LeaseSeen] = Channel(LeaseSeen, "qqB")


class WaitSeen(NamedTuple):
    """A change of a command that waits."""

    key: int
    wait: int
    """Its place in the table."""
    command: int
    """`NOTHING` when it was answered."""


WAITS: Channel[WaitSeen] = Channel(WaitSeen, "qqq")
