"""What a family of commands brings to the load of a torture: a generator of its commands."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar

from schemas.topics import TopicSpec


class Proof(Enum):
    """What shows that a command was processed."""

    EVENT = auto()
    """An event with its command id. For commands that are certain to make one."""
    REPLY = auto()
    """The reply to this very record. For commands that may be refused, or change nothing."""
    DEAD_LETTER = auto()
    """A dead letter, and a reply. For what has a wrong envelope."""


@dataclass(frozen=True)
class LoadCommand:
    """One record to be sent."""

    kind: str
    """What it is counted as: the command's type, or in which way it is odd."""
    key: bytes | None
    value: bytes | None
    command_id: str | None
    """None when the record has none that could be read."""
    proof: Proof
    may_be_misrouted: bool = True
    """False when it has to keep its place among the commands of its key."""
    waits: bool = False
    """Its answer may come late, since it waits for something: how long that took says nothing of a fault."""


class LoadGenerator:
    """Makes the commands of one family, in an order that its source of chance decides.

    `next` is called in the sender's thread, `saw` in the observer's, the others when both are quiet.
    """

    name: ClassVar[str]
    """Of the family."""
    topic: ClassVar[TopicSpec]
    """Where its commands go."""
    share: ClassVar[float] = 1.0
    """Of the rate, relative to other generators."""

    def __init__(self, source: random.Random) -> None:
        self.source = source

    def next(self) -> LoadCommand:
        """The next command."""
        raise NotImplementedError

    def saw(self, topic: str, body: dict[str, Any]) -> None:
        """Told of every record of the output topics (names without prefix), also of those of other families."""

    def unfinished(self) -> int:
        """How many things must still happen when every command has had its effect, such as runs that have to end."""
        return 0

    def problems(self) -> list[str]:
        """What is not as it has to be, in words, by what was sent and seen."""
        return []

    def counts(self) -> dict[str, int]:
        """What there is to say of this family in the account, by what it is called there."""
        return {}

    def new_id(self, what: str) -> str:
        """An id that this load has not used, the same for the same seed."""
        return f"{what}-{self.source.getrandbits(80):020x}"
