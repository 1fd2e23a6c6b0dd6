"""The compact records of slots: the named places of a run that commands fill and replies show.

A slot is a child's result, a call, the run's retry state, its sessions or its instance; its traces are counted only.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from streams.verify.spill import Channel


class Use:
    """What a command does with a slot."""

    FILL: Final = 0
    """Puts a content there."""
    SUBMIT: Final = 1
    """As `FILL`, if it is the run's submit."""
    SHOW: Final = 2
    """Its reply shows the content."""
    AWAIT: Final = 3
    """Its reply shows the content, or that which comes next."""
    CLAIM: Final = 4
    """Shows a call's outcome, or gets the call and a fencing number."""
    HOLD: Final = 5
    """Renews or releases a call under a fencing number."""
    PUBLISH: Final = 6
    """Puts a call's outcome there under a fencing number."""
    ATTEMPT: Final = 7
    """Shows the retry state, and gets an attempt."""
    COUNT: Final = 8
    """Adds a trace."""


class SlotUse(NamedTuple):
    """A command that is about a slot."""

    key: int
    offset: int
    """Of the command."""
    slot: int
    content: int
    """What it puts there; `NOTHING` for nothing."""
    number: int
    """The fencing number that it names."""
    use: int


USES: Channel[SlotUse] = Channel(SlotUse, "qqqqqB")


class SlotSeen(NamedTuple):
    """A change of a slot in the changelog."""

    key: int
    slot: int
    content: int
    """`NOTHING` when it was deleted."""
    offset: int


SLOTS: Channel[SlotSeen] = Channel(SlotSeen, "qqqq")


class CallSeen(NamedTuple):
    """A change of a call in the changelog."""

    key: int
    slot: int
    number: int
    """Which call of the run it is; 0 when it was deleted."""
    fencing_number: int
    offset: int
    partition: int
    published: int


CALLS: Channel[CallSeen] = Channel(CallSeen, "qqqqqHB")


class OutcomeSeen(NamedTuple):
    """A change of a call's outcome in the changelog."""

    key: int
    number: int
    """Which call of the run it is."""
    content: int
    """`NOTHING` when it was deleted."""
    offset: int


OUTCOMES: Channel[OutcomeSeen] = Channel(OutcomeSeen, "qqqq")


class TraceSeen(NamedTuple):
    """A change of a trace in the changelog."""

    key: int
    number: int
    offset: int
    is_there: int


TRACES: Channel[TraceSeen] = Channel(TraceSeen, "qqqB")

SLOT_CHANNELS = (USES, SLOTS, CALLS, OUTCOMES, TRACES)
