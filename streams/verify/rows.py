"""The compact records that every command family has. Texts and bytes stand in them as digests."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

from streams.verify.spill import Channel


class Fate(IntEnum):
    """What can be said of a command when it is read."""

    TAKEN = 0
    """It is where it belongs: the machine decides, or it is a repeat."""
    MISPLACED = 1
    """In the wrong partition: it is forwarded."""
    DEAD = 2
    """It has a dead letter."""


class CommandSeen(NamedTuple):
    """A command in the log."""

    key: int
    command: int
    """Its id."""
    offset: int
    timestamp: int
    correlation: int
    """Its correlation id; `NOTHING` without a reply address."""
    content: int
    """Its value."""
    partition: int
    owner: int
    """The partition of its key."""
    reply_partition: int
    type: int
    """Position among the types of its topic."""
    fate: int


COMMAND_LAYOUT = "qqqqqqHHHBB"


class AnswerSeen(NamedTuple):
    """A change of what is remembered of a command."""

    key: int
    command: int
    state: int
    """See `Remembered`."""


ANSWER_LAYOUT = "qqB"


class Remembered(IntEnum):
    """What is remembered of a command."""

    FORGOTTEN = 0
    REFUSED = 1
    ACCEPTED = 2


class Says(IntFlag):
    """What a command's reply may be, and what its absence means."""

    YES = 1
    """It may be accepted."""
    NO = 2
    """It may be refused."""
    LOST = 4
    """Nothing shows that the command was processed, unless there is a reply."""
    FORGOTTEN = 8
    """What would show how the command fared is gone, unless there is a reply."""
    LATER = 16
    """The reply may not be there yet."""
    ONCE = 32
    """However often the command was sent, its replies are the same."""


class Expected(NamedTuple):
    """A command that asked for a reply, and what the reply has to say as far as the topics tell."""

    join: int
    """The command's id, or its correlation id when it has none."""
    key: int
    command: int
    correlation: int
    offset: int
    timestamp: int
    seq: int
    """The `seq` that an accepting reply names; negative for any."""
    ts: int
    """The event's time that it names; `NOTHING` for any."""
    end: int
    """The terminal state that it holds, if it holds one; `NOTHING` for any."""
    code: int
    """The error code of a refusing reply; `NOTHING` for any."""
    least: int
    """The least `latestSeq` that it names."""
    partition: int
    reply_partition: int
    topic: int
    """Position of its family."""
    says: int


EXPECTED: Channel[Expected] = Channel(Expected, "qqqqqqqqqqqHHBB")


class ReplySeen(NamedTuple):
    """A reply."""

    join: int
    command: int
    correlation: int
    offset: int
    timestamp: int
    seq: int
    ts: int
    end: int
    code: int
    latest: int
    answer: int
    """All that it says."""
    partition: int
    ok: int


REPLIES: Channel[ReplySeen] = Channel(ReplySeen, "qqqqqqqqqqqHB")
