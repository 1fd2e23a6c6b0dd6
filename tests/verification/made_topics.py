"""Topics in memory, to be verified: what was committed, and how much of it a reader finds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schemas.topics import COMMAND_TOPICS, STATE_CHANGELOG
from streams.verify.findings import Place
from streams.verify.log_source import Range, Record

CHANGELOG = STATE_CHANGELOG.name
_COMMANDS = {spec.name for spec in COMMAND_TOPICS}

At = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True)
class Made:
    """One committed record, asked like a record of the native client."""

    at: int
    """Its offset."""
    time: int
    own_key: bytes | None
    own_value: bytes | None
    own_headers: tuple[tuple[str, bytes | None], ...] = ()
    step: int = 0
    """The number of the transaction, of all, that committed it."""

    def key(self) -> bytes | None:
        return self.own_key

    def value(self) -> bytes | None:
        return self.own_value

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time

    def headers(self) -> Any:
        return list(self.own_headers) or None


@dataclass
class Topics:
    """The topics of a deployment; implements `LogSource`."""

    partitions: int
    logs: defaultdict[At, list[Made]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[At, int] = field(default_factory=dict)
    """Where retention has left off; 0 unless said."""
    seen_at: Callable[[At], float] = lambda at: float("inf")
    """Up to which step a partition can be read, when it is first read."""
    _ends: dict[At, int] = field(default_factory=dict)
    _read: dict[At, Range] = field(default_factory=dict)

    def name(self, topic: str) -> str:
        return f"made-{topic}"

    def extent(self, topic: str, partition: int) -> int:
        return len(self._records((topic, partition)))

    def read_state(self, partition: int) -> Iterator[Sequence[Record]]:
        at = (CHANGELOG, partition)
        self._ends[at] = self._end(at)
        yield from self.read(*at)

    def read_state_later(self, partition: int, start: int) -> Iterator[Sequence[Record]]:
        yield [record for record in self._records((CHANGELOG, partition)) if record.at >= start]

    def take_ends(self) -> None:
        for at in list(self.logs):
            if at[0] != CHANGELOG:
                self._ends[at] = self._end(at)

    def read(self, topic: str, partition: int) -> Iterator[Sequence[Record]]:
        at = (topic, partition)
        end = self._ends.get(at, 0)
        records = [record for record in self._records(at) if record.at < end]
        found = Range(self.starts.get(at, 0), end, len(records))
        found.first_timestamp = records[0].time if records else None
        self._read[at] = found
        # In pieces of several sizes, as they come from a broker.
        while records:
            yield records[:7]
            records = records[7:]

    def range(self, topic: str, partition: int) -> Range:
        at = (topic, partition)
        return self._read.get(at, Range(self.starts.get(at, 0), self._ends.get(at, 0)))

    def fetch(self, place: Place) -> Record | None:
        records = self._records((place.topic, place.partition))
        return next((record for record in records if record.at == place.offset), None)

    def copy(self) -> Topics:
        """The same topics, to be changed or read anew."""
        logs = defaultdict(list, {at: list(records) for at, records in self.logs.items() if records})
        return Topics(self.partitions, logs, dict(self.starts))

    def find(self, topic: str, wanted: Callable[[Made], bool] = lambda record: True) -> tuple[At, Made]:
        """The first record of a topic that is wanted."""
        for at in sorted(self.logs):
            for record in self.logs[at]:
                if at[0] == topic and wanted(record):
                    return at, record
        raise AssertionError(f"no such record on {topic}")

    def put(self, at: At, changed: Made) -> Place:
        """Put a record in the place of the one at its offset; returns the place."""
        self.logs[at] = [changed if record.at == changed.at else record for record in self.logs[at]]
        return Place(*at, changed.at)

    def remove(self, at: At, record: Made) -> Place:
        """Remove a record; returns its place."""
        self.logs[at].remove(record)
        return Place(*at, record.at)

    def append(self, at: At, record: Made, **changes: Any) -> Place:
        """Append a changed copy of a record; returns its place."""
        end = max((kept.at for kept in self.logs[at]), default=-1) + 1
        self.logs[at].append(replace(record, at=end, **changes))
        return Place(*at, end)

    def delete_before(self, at: At, offset: int) -> None:
        """What retention does."""
        self.starts[at] = offset

    def compact(self, at: At, keep: Iterable[int] = ()) -> None:
        """What compaction does: of each key the last record is left, and those at the offsets `keep`."""
        last = {record.own_key: record.at for record in self.logs[at]}
        kept = {*last.values(), *keep}
        self.logs[at] = [record for record in self.logs[at] if record.at in kept]

    def _records(self, at: At) -> list[Made]:
        start = self.starts.get(at, 0)
        return [record for record in self.logs.get(at, ()) if record.at >= start]

    def _end(self, at: At) -> int:
        """The first offset that is not visible yet."""
        steps = self.seen_at(at)
        hidden = [record.at for record in self.logs[at] if record.step > steps]
        return min(hidden) if hidden else max((record.at for record in self.logs[at]), default=-1) + 1
