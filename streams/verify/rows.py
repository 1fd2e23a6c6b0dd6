"""The compact records that every command family has. Texts and bytes stand in them as digests."""

from __future__ import annotations

from typing import Final, NamedTuple

from streams.verify.spill import Channel


class Fate:
    """What can be said of a command when it is read. Plain numbers: they are compared millions of times."""

    TAKEN: Final = 0
    """It is where it belongs: the machine decides, or it is a repeat."""
    MISPLACED: Final = 1
    """In the wrong partition: it is forwarded."""
    DEAD: Final = 2
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
    said: int
    """All that the reply says; `NOTHING` when a part of it is looked up again each time."""
    number: int
    """The number that it hands out, such as a fencing number; -1 for none."""
    state: int
    """See `Remembered`."""


ANSWER_LAYOUT = "qqqqB"


class Remembered:
    """What is remembered of a command."""

    FORGOTTEN: Final = 0
    REFUSED: Final = 1
    ACCEPTED: Final = 2


class Says:
    """What a command's reply may be, and what its absence means: a sum of these."""

    YES: Final = 1
    """It may be accepted."""
    NO: Final = 2
    """It may be refused."""
    LOST: Final = 4
    """Nothing shows that the command was processed, unless there is a reply."""
    FORGOTTEN: Final = 8
    """What would show how the command fared is gone, unless there is a reply."""
    LATER: Final = 16
    """The reply may not be there yet."""
    ONCE: Final = 32
    """However often the command was sent, its replies are the same."""
    ANEW: Final = 64
    """Replies show what is stored when they are given: those to one command may differ."""


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
    said: int
    """All that it says; `NOTHING` for anything."""
    content: int
    """The stored content that an accepting reply shows; `NOTHING` for any."""
    other: int
    """Another content that is as right."""
    grants: int
    """What it may give a fencing number for; `NOTHING` for nothing."""
    partition: int
    reply_partition: int
    topic: int
    """Position of its family."""
    says: int


EXPECTED: Channel[Expected] = Channel(Expected, "qqqqqqqqqqqqqqqHHBB")


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
    content: int
    """The stored content that it shows; `EMPTY` when it says that there is none, `NOTHING` when it is about none."""
    number: int
    """The fencing number that it gives; -1 for none."""
    answer: int
    """All that it says."""
    partition: int
    ok: int


REPLIES: Channel[ReplySeen] = Channel(ReplySeen, "qqqqqqqqqqqqqHB")


class Granted(NamedTuple):
    """A fencing number that a reply gave."""

    thing: int
    """What it is for."""
    number: int
    command: int
    """Id of the command that got it."""
    offset: int
    """Of the reply."""
    partition: int


GRANTED: Channel[Granted] = Channel(Granted, "qqqqH")
