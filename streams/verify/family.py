"""What a command family brings along to be verified: readers of its outputs and tables, and rules over its entities.

All compact records of one entity (a run, a bucket, ...) are brought together, and the rules look at one entity at
a time: they are pure, and know neither Kafka nor the other entities.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from agents.families import Family
from agents.tables import Table
from streams.verify.cut import Cut
from streams.verify.digests import NOTHING
from streams.verify.entity import EntityView
from streams.verify.findings import Rule, Tally
from streams.verify.reading import ReadAnswer, ReadChange, ReadCommand, Reading, ReadRecords
from streams.verify.rows import ANSWER_LAYOUT, COMMAND_LAYOUT, AnswerSeen, CommandSeen
from streams.verify.spill import Channel

V = TypeVar("V", bound=EntityView)


class Made(Protocol):
    """The compact record of an output."""

    @property
    def command(self) -> int:
        """The command that made it."""

    @property
    def offset(self) -> int:
        """Where it is."""

    @property
    def timestamp(self) -> int:
        """When it was written."""


Rows = Mapping[Channel[Any], list[Any]]
"""All compact records of one entity, by kind, each kind in the order of the log."""


class Reply(NamedTuple):
    """What the reply to a command has to say; see `streams.verify.rows.Expected`."""

    says: int
    """See `Says`."""
    seq: int = -1
    ts: int = NOTHING
    end: int = NOTHING
    least: int = 0
    content: int = NOTHING
    other: int = NOTHING
    grants: int = NOTHING


class VerifiedFamily(ABC, Generic[V]):
    """One command family."""

    output_topics: tuple[str, ...] = ()
    """Topics (without prefix) of which `outputs` reads every partition."""
    state_tables: tuple[Table[Any], ...] = ()
    """All its tables in the changelog."""
    rules: tuple[Rule, ...] = ()
    """What `check` looks at."""

    def __init__(self, family: Family, *channels: Channel[Any]) -> None:
        """`channels` are the kinds of compact records that the family's own readers write."""
        self.family = family
        self.commands: Channel[CommandSeen] = Channel(CommandSeen, COMMAND_LAYOUT)
        self.answers: Channel[AnswerSeen] = Channel(AnswerSeen, ANSWER_LAYOUT)
        self.channels: tuple[Channel[Any], ...] = (self.commands, self.answers, *channels)
        self.questions = frozenset(
            number for number, model in enumerate(family.commands.models) if model.is_question
        )
        """The types of commands, by their position, that change nothing."""

    @property
    def topic(self) -> str:
        """Its command topic, without prefix."""
        return self.family.commands.topic

    @abstractmethod
    def outputs(self, topic: str, partition: int, reading: Reading) -> ReadRecords:
        """The reader of one partition of an output topic."""

    @abstractmethod
    def tables(self, partition: int, reading: Reading) -> Mapping[str, ReadChange]:
        """The readers of its tables in one partition of the changelog, by the tables' names.

        Of tables without a reader only the schema is checked.
        """

    def commands_read(self, reading: Reading) -> Mapping[str, ReadCommand]:
        """The readers of what commands say, by the commands' type; of other types nothing more is read."""
        return {}

    def answers_read(self, reading: Reading) -> ReadAnswer | None:
        """The reader of what is remembered of commands that were accepted, if there is more to read than all have."""
        return None

    def content_of(self, result: Mapping[str, Any]) -> int:
        """The digest of the stored content that a reply's result shows; see `streams.verify.rows.ReplySeen`."""
        return NOTHING

    @abstractmethod
    def view(self, rows: Rows, cut: Cut) -> V:
        """An entity as the rules look at it."""

    @abstractmethod
    def made(self, view: V) -> Mapping[str, Sequence[Made]]:
        """The outputs of the entity, by topic."""

    @abstractmethod
    def check(self, view: V, tally: Tally) -> None:
        """Hold an entity against the rules."""

    @abstractmethod
    def reply(self, view: V, command: CommandSeen) -> Reply:
        """What a reply to a command up to the watermark has to say."""
