"""The compact records of runs."""

from __future__ import annotations

from typing import Final, NamedTuple

from streams.verify.spill import Channel


class Kind:
    """The kinds of events."""

    STATUS: Final = 0
    LOG: Final = 1
    PROGRESS: Final = 2
    TERMINAL: Final = 3


class EventSeen(NamedTuple):
    """An event on `run-events`."""

    key: int
    command: int
    seq: int
    offset: int
    timestamp: int
    """When the record was written."""
    content: int
    """Its JSON."""
    ts: int
    """The event's own time."""
    end: int
    """Of a terminal event the terminal state that it stands for."""
    status: int
    """Of a terminal event its status."""
    partition: int
    kind: int


EVENTS: Channel[EventSeen] = Channel(EventSeen, "qqqqqqqqqHB")


class TerminalSeen(NamedTuple):
    """A terminal state on `run-terminals`."""

    key: int
    command: int
    seq: int
    offset: int
    timestamp: int
    end: int
    partition: int


TERMINALS: Channel[TerminalSeen] = Channel(TerminalSeen, "qqqqqqH")


class DispatchSeen(NamedTuple):
    """A dispatch on `run-dispatch`."""

    key: int
    command: int
    offset: int
    timestamp: int
    partition: int


DISPATCHES: Channel[DispatchSeen] = Channel(DispatchSeen, "qqqqH")


class HeadSeen(NamedTuple):
    """A change of a run's head in the changelog."""

    key: int
    offset: int
    seq: int
    """Of the latest event; -1 when the head was deleted."""
    status: int
    submit_seq: int
    calls: int
    """How many calls the run has."""
    traces: int
    """How many traces it has had."""
    partition: int
    ended: int
    evicted: int


HEADS: Channel[HeadSeen] = Channel(HeadSeen, "qqqqqqqHBB")


class KeptSeen(NamedTuple):
    """A change of a kept event in the changelog."""

    key: int
    seq: int
    content: int
    """Its JSON; `NOTHING` when it was deleted."""
    offset: int


KEPT: Channel[KeptSeen] = Channel(KeptSeen, "qqqq")


class StoredEnd(NamedTuple):
    """A change of a run's terminal state in the changelog."""

    key: int
    end: int
    """`NOTHING` when it was deleted."""
    offset: int


ENDS: Channel[StoredEnd] = Channel(StoredEnd, "qqq")


class WaitSeen(NamedTuple):
    """A change of a waiting question in the changelog."""

    key: int
    wait: int
    """Its place in the table."""
    command: int
    """`NOTHING` when it was answered."""
    correlation: int


WAITS: Channel[WaitSeen] = Channel(WaitSeen, "qqqq")
