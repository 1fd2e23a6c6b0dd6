"""What a checker knows: the records of the topics, and what the client sent. Imports nothing of ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

TOPICS = (
    "run-commands",
    "run-events",
    "run-terminals",
    "run-dispatch",
    "replies",
    "dead-letters",
    "state-changelog",
)


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    """Without prefix."""
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Content(NamedTuple):
    """What a record carries."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Row:
    """One committed record."""

    place: Place
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @cached_property
    def body(self) -> dict[str, Any]:
        """The value as a JSON object; empty when it is none."""
        try:
            body = json.loads(self.value or b"")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    @property
    def content(self) -> Content:
        """All that it carries."""
        return Content(self.key, self.value, self.headers)

    def header(self, name: str) -> bytes | None:
        """The last header of a name."""
        return dict(self.headers).get(name)


@dataclass(frozen=True)
class SentCommand:
    """A record that the broker acknowledged to the client."""

    partition: int
    offset: int | None
    """None when the client sent it again and the broker had it already: then the broker does not tell."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def content(self) -> Content:
        """All that is to be found in the log."""
        return Content(self.key, self.value, self.headers)


@dataclass(frozen=True)
class History:
    """All committed records by topic, each partition in the order of its offsets, and what the client sent."""

    partitions: int
    rows: Mapping[str, list[Row]]
    sent: list[SentCommand] = field(default_factory=list)

    def partition(self, topic: str, number: int) -> list[Row]:
        """The records of one partition, in order."""
        return [row for row in self.rows[topic] if row.place.partition == number]

    def replaced(self, topic: str, rows: Iterable[Row]) -> History:
        """The same history with other records in one topic."""
        return History(self.partitions, {**self.rows, topic: list(rows)}, self.sent)

    def of_keys(self, prefix: bytes) -> History:
        """What it tells of the runs whose ids begin so."""
        by_key = {
            topic: [row for row in rows if (row.key or b"").startswith(prefix)]
            for topic, rows in self.rows.items()
        }
        asked = {row.header("correlation-id") for row in by_key["run-commands"]} - {None}
        chosen = {
            **by_key,
            "replies": [row for row in self.rows["replies"] if row.key in asked],
            # A state key is the table's name and then the run's id.
            "state-changelog": [
                row
                for row in self.rows["state-changelog"]
                if row.key is not None and row.key.partition(b"\0")[2].startswith(prefix)
            ],
        }
        sent = [command for command in self.sent if (command.key or b"").startswith(prefix)]
        return History(self.partitions, chosen, sent)


class Violation(NamedTuple):
    """One way in which a history breaks what was promised."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}: {self.what}"
