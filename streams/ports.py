"""What a lane needs of the outside, as ports: a transactional log and a local store.

`streams.kafka_log` and `streams.rocks_store` are the real ones. Whatever implements these can run a lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from schemas.envelope import Headers


class CommandRecord(NamedTuple):
    """One record of a command topic, as it was read."""

    topic: str
    """Without prefix, such as `run-commands`."""
    partition: int
    offset: int
    timestamp: int
    """The broker's time of the record, in milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers


class OutRecord(NamedTuple):
    """One record to produce in a lane's transaction."""

    topic: str
    """Without prefix."""
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None = None


StateChange = tuple[bytes, bytes | None]
"""Key and value of a state record; value None deletes it."""


class LaneLostError(Exception):
    """The lane cannot know or keep its state: drop it with all that is in flight, and open it again."""


class StoreBrokenError(LaneLostError):
    """The local store cannot be read or written; it is thrown away when the lane is opened again."""


class FencedError(LaneLostError):
    """Another owner took over the lane's transactional ids."""


class RecordsRefusedError(LaneLostError):
    """The broker refused a record of the transaction; the transaction was aborted."""


@dataclass(frozen=True, slots=True)
class StoreStamp:
    """What a local store stands for."""

    changelog_id: str
    """Id of the changelog topic; another id means that the topics were made anew."""
    position: int
    """Changelog offset up to which (exclusive) the store is complete."""
    written_at: int
    """When the store was written last, in milliseconds since the epoch."""


class StateStore(Protocol):
    """The local state of one lane: an ordered map of bytes. Only a cache of the changelog."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All pairs whose key begins with `prefix`, in key order, from key `start` on."""

    def stamp(self) -> StoreStamp | None:
        """What the store stands for; None when it is new."""

    def write(self, changes: Iterable[StateChange], stamp: StoreStamp) -> None:
        """Apply changes and the new stamp, all or nothing."""

    def close(self) -> None:
        """Release the store; it keeps what was written."""


class StoreFactory(Protocol):
    """Opens and destroys the stores of a worker's lanes."""

    def open(self, partition: int) -> StateStore:
        """The lane's store, made when it is not there. Raises `StoreBrokenError`."""

    def destroy(self, partition: int) -> None:
        """Throw the lane's store away; it must be closed."""


class LaneLog(Protocol):
    """The log side of one lane: its ring of transactional ids, its changelog partition, its output partitions.

    Every method may raise `LaneLostError`. They wait for a broker that is away, without end, unless the lane
    was told to stop.
    """

    def fence(self) -> None:
        """Take over all transactional ids of the ring: ends the old owner and its open transactions."""

    def hung_partitions(self) -> dict[str, int]:
        """Output topics (without prefix) in whose partition, written by this lane alone, the last stable offset
        stays behind the end: topic -> stable offset. Empty when all is well."""

    def abort_hung(self, topics: Iterable[str]) -> None:
        """End what hangs in the lane's partition of these topics as aborted."""

    def changelog_id(self) -> str:
        """Id of the changelog topic."""

    def changelog_end(self) -> int:
        """End offset of the lane's changelog partition, open transactions included."""

    def read_changelog(self, start: int, end: int) -> Iterator[tuple[list[StateChange], int]]:
        """Committed changes from offset `start` on, in chunks, each with the position behind it; the last
        position is at least `end`."""

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord]) -> None:
        """Begin a transaction and produce all in it; there is at least one change."""

    def commit(self) -> int:
        """Commit what was produced. Returns the changelog position behind the changes.

        Raises `RecordsRefusedError` when nothing of it is visible and never will be; any other
        `LaneLostError` leaves the outcome open.
        """

    def close(self) -> None:
        """Release the producers; what is in flight is dropped."""
