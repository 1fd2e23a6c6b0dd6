"""Where records come from, as a port: the topics of a broker, or a history in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from streams.verify.findings import Place


class Record(Protocol):
    """One committed record, as the native client gives it."""

    def key(self) -> bytes | None:
        """Its key."""

    def value(self) -> bytes | None:
        """Its value."""

    def offset(self) -> int:
        """Its offset."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of its time, and its time in ms since the epoch."""

    def headers(self) -> Any:
        """Its headers as (name, value) pairs, or None. Raises `UnicodeDecodeError` for a name that is not UTF-8."""


@dataclass
class Range:
    """What was read of one partition."""

    start: int = 0
    """The log's first offset; over 0 when retention has deleted records."""
    end: int = 0
    """Up to where it was read, exclusive."""
    records: int = 0
    first_timestamp: int | None = None
    """When the first record was written, in ms since the epoch; None when there is none."""
    is_settled: bool = True
    """False when a transaction stayed open: records behind `end` may belong to what was read elsewhere."""

    @property
    def is_whole(self) -> bool:
        """Whether the log has its beginning."""
        return self.start == 0


class LogSource(Protocol):
    """The topics of one deployment, named without prefix. Only committed records are read.

    The order of the calls makes a consistent cut: first every partition of the changelog to its end, then
    `take_ends`, then everything else up to those ends.
    """

    @property
    def partitions(self) -> int:
        """Of every topic."""

    def name(self, topic: str) -> str:
        """The topic's name on the broker, with the prefix."""

    def extent(self, topic: str, partition: int) -> int:
        """About how many records a partition has; 0 for one that does not exist."""

    def read_state(self, partition: int) -> Iterator[Sequence[Record]]:
        """The changelog to its end, as it is when the reader gets there."""

    def read_state_later(self, partition: int, start: int) -> Iterator[Sequence[Record]]:
        """The changelog from an offset on, to its end after all that is written now."""

    def take_ends(self) -> None:
        """Note how far the other topics can be read: what the changelogs stand for is before these ends.

        The ends of command topics are noted last: every command that made an output before an end is there.
        """

    def read(self, topic: str, partition: int) -> Iterator[Sequence[Record]]:
        """A partition from its beginning to its end."""

    def range(self, topic: str, partition: int) -> Range:
        """What was read of a partition; `start` is the log's beginning as it is now."""

    def fetch(self, place: Place) -> Record | None:
        """One record; None when it is not there any more."""
