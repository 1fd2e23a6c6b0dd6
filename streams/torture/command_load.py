"""What generators of commands about single entities (runs, rate buckets) have in common."""

from __future__ import annotations

import random
from collections import deque
from typing import Any, ClassVar

from schemas.json_codec import encode
from schemas.topics import RUN_COMMANDS, TopicSpec
from streams.torture.load import LoadCommand, LoadGenerator, Proof

_REMEMBERED = 500
_SHOWN = 10


class CommandLoad(LoadGenerator):
    """A generator that has made its newest commands, and may make them again."""

    topic: ClassVar[TopicSpec] = RUN_COMMANDS

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self.recent: deque[LoadCommand] = deque(maxlen=_REMEMBERED)

    def command(
        self,
        type_: str,
        key: str,
        proof: Proof,
        *,
        command_id: str | None = None,
        misroute: bool = True,
        waits: bool = False,
        **fields: Any,
    ) -> LoadCommand:
        """A command about the entity `key`; without a `command_id`, one with an id of its own."""
        command_id = command_id or self.new_id("c")
        value = encode({"type": type_, "commandId": command_id, self.topic.id_field or "": key, **fields})
        return LoadCommand(type_, key.encode(), value, command_id, proof, misroute, waits)

    def again(self) -> LoadCommand:
        """One of the newest commands as it was, as by a client that did not hear the answer."""
        made = self.source.choice(self.recent)
        return LoadCommand(
            "repeat", made.key, made.value, made.command_id, Proof.REPLY, made.may_be_misrouted, made.waits
        )


class RepeatingLoad(CommandLoad):
    """A generator that makes a share of its commands twice, and others once an answer has told what is due."""

    repeated_share: ClassVar[float] = 0.05

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self.due: deque[LoadCommand] = deque()

    def next(self) -> LoadCommand:
        """See `LoadGenerator`."""
        if self.due:
            made = self.due.popleft()
        elif self.recent and self.source.random() < self.repeated_share:
            return self.again()
        else:
            made = self.make()
        self.recent.append(made)
        return made

    def make(self) -> LoadCommand:
        """The next command of its own accord."""
        raise NotImplementedError


def first_of(problems: list[str]) -> list[str]:
    """The first of many, and how many more there are."""
    more = len(problems) - _SHOWN
    return problems if more <= 0 else [*problems[:_SHOWN], f"... and {more:,} more of this kind"]
