"""What was fetched for a lane and waits to be processed: nothing is taken out of order, nothing is skipped.

Command topics have holes (transaction markers), and a consumer can lose a fetched chunk in a rebalance. So the
driver tags each chunk with the offset that it delivered before it (after a seek: the sought offset - 1) and with
the number of the seek that it follows, the epoch. A chunk counts only in its epoch, and only when its predecessor
has been taken or lies at or below the watermark. Otherwise the topic has to be sought again (DESIGN 3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from streams.ports import CommandRecord


@dataclass(slots=True)
class Chunk:
    """What one fetch brought for one partition of a command topic."""

    topic: str
    """Without prefix."""
    previous: int
    """Offset delivered before the first record; after a seek, the sought offset - 1."""
    epoch: int
    records: Sequence[CommandRecord]
    size: int
    """Bytes of the values and headers."""


class Inbox:
    """Fetched commands of one lane, by arrival. Not thread-safe; owned by the event loop."""

    def __init__(self) -> None:
        self._chunks: deque[Chunk] = deque()
        self._head: dict[str, int] = {}
        self._epoch: dict[str, int] = {}
        self._early: list[Chunk] = []
        self.pending = 0
        """Commands that wait."""

    def restart(self, sought: Mapping[str, tuple[int, int]]) -> None:
        """Topics were sought: topic -> (watermark, epoch). What was fetched for them before is dropped."""
        self._chunks = deque(chunk for chunk in self._chunks if chunk.topic not in sought)
        self.pending = sum(len(chunk.records) for chunk in self._chunks)
        for topic, (watermark, epoch) in sought.items():
            self._head[topic] = watermark
            self._epoch[topic] = epoch
        early, self._early = self._early, []
        for chunk in early:
            self.put(chunk)

    def clear(self) -> None:
        """Drop all; nothing is accepted until the next `restart`."""
        self._chunks.clear()
        self._head.clear()
        self._epoch.clear()
        self._early.clear()
        self.pending = 0

    def put(self, chunk: Chunk) -> None:
        """Add a fetched chunk; one of an older epoch is dropped, since it will come again.

        One of a newer epoch follows a seek whose `restart` is about to come.
        """
        epoch = self._epoch.get(chunk.topic, -1)
        if chunk.epoch == epoch:
            self._chunks.append(chunk)
            self.pending += len(chunk.records)
        elif chunk.epoch > epoch:
            self._early.append(chunk)

    def head(self, topic: str) -> int | None:
        """Offset of the last command taken; None when the topic has not been sought."""
        return self._head.get(topic)

    def take(self, max_commands: int, max_bytes: int) -> tuple[list[CommandRecord], set[str]]:
        """The next commands, at least one when there is one, and the topics that have to be sought again.

        Bytes are counted as the average of a chunk; a single command may exceed `max_bytes`.
        """
        taken: list[CommandRecord] = []
        gaps: set[str] = set()
        size = 0
        while self._chunks and len(taken) < max_commands and (not taken or size < max_bytes):
            chunk = self._chunks.popleft()
            topic = chunk.topic
            if topic in gaps or chunk.previous > self._head[topic]:
                gaps.add(topic)
                self.pending -= len(chunk.records)
                continue
            per_record = max(1, chunk.size // max(1, len(chunk.records)))
            room = min(max_commands - len(taken), (max_bytes - size) // per_record)
            if room < 1 and taken:
                self._chunks.appendleft(chunk)
                break
            room = max(room, 1)
            part = chunk.records[:room]
            taken.extend(part)
            size += per_record * len(part)
            self.pending -= len(part)
            if part:
                self._head[topic] = max(self._head[topic], part[-1].offset)
            if len(part) < len(chunk.records):
                rest = chunk.records[room:]
                self._chunks.appendleft(
                    Chunk(topic, part[-1].offset, chunk.epoch, rest, chunk.size - per_record * len(part))
                )
        return taken, gaps
