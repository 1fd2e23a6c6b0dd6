"""The point up to which a deployment is checked: what each lane's changelog stood for when it was read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from streams.partitioner import partition_for
from streams.verify.log_source import Range


@dataclass
class LaneCut:
    """What one partition of the changelog says about its lane."""

    partition: int
    position: int = 0
    """Changelog offset up to which it was read."""
    watermarks: dict[str, int] = field(default_factory=dict)
    """Command topic (without prefix) -> offset of the last command that is done."""
    clock: int = 0
    """The lane's time, in milliseconds since the epoch."""
    transactions: int = 0
    """Number of the lane's last transaction."""


@dataclass(frozen=True)
class RepeatLimits:
    """How long a command id is remembered, as the workers' settings have it."""

    commands: int
    ms: int


@dataclass
class Cut:
    """All lanes' points, and how much of the topics there was to read."""

    partitions: int
    repeats: RepeatLimits
    only: bytes | None = None
    """The key to which the verification is limited."""
    lanes: dict[int, LaneCut] = field(default_factory=dict)
    ranges: dict[tuple[str, int], Range] = field(default_factory=dict)
    """By topic (without prefix) and partition: what was read."""

    @property
    def lane_partitions(self) -> Iterable[int]:
        """The lanes that are checked."""
        return range(self.partitions) if self.only is None else [partition_for(self.only, self.partitions)]

    def watermark(self, topic: str, partition: int) -> int:
        """Offset of the last command whose effects the changelog stands for; -1 when there is none."""
        return self.lanes[partition].watermarks.get(topic, -1)

    def is_whole(self, topic: str, partition: int) -> bool:
        """Whether the log has its beginning: retention has removed nothing."""
        return self.ranges[topic, partition].is_whole
