"""What a lane needs of the outside, as ports: a cluster with transactions, and a local store.

`streams.kafka_cluster` and `streams.rocks_store` are the real ones. Whatever implements these can run a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from schemas.envelope import Headers
from schemas.values import Value


class CommandRecord(Value, frozen=True):
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

    def __repr__(self) -> str:
        # The value may hold secrets that no message and no log may show.
        return f"CommandRecord({self.topic}[{self.partition}]@{self.offset})"


class OutRecord(Value, frozen=True):
    """One record to produce in a lane's transaction."""

    topic: str
    """Without prefix."""
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] | None = None

    def __repr__(self) -> str:
        # A forwarded command's value may hold secrets that no message and no log may show.
        return f"OutRecord({self.topic}[{self.partition}], {len(self.value or b'')} bytes)"


HEAL_KEY = b"\0heal"
"""Key of an empty record that ends a hung transaction, or stands before its records when they are written again; no
reader needs it."""

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
    """When nothing that belongs to the store had been compacted away behind the position, in milliseconds since the
    epoch: when it was last written, or its restore began."""


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


class Place(NamedTuple):
    """An offset of a partition."""

    topic: str
    """Without prefix."""
    partition: int
    offset: int


class LoggedRecord(NamedTuple):
    """A record of a partition that lanes write, as it stands in the log; its transaction may be open or aborted."""

    place: Place
    timestamp: int
    """When it was written, in milliseconds since the epoch."""
    key: bytes | None
    value: bytes | None
    headers: Headers

    def __repr__(self) -> str:
        # The value may hold secrets that no message and no log may show.
        return f"LoggedRecord({self.place})"


class TransactionalProducer(Protocol):
    """One transactional id of a lane. Every method may raise `LaneLostError`."""

    def connect(self) -> None:
        """Find the cluster; waits for one that is away."""

    def fence(self) -> None:
        """Take the id over (`init_transactions`): ends the old owner and its open transaction."""

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord], name: bytes) -> None:
        """Begin a transaction and produce all in it; there is at least one change.

        The first change gets `name` in the header `TRANSACTION`. Raises `LaneLostError` before it begins when the
        cluster may have lost markers of this id since `fence`: this transaction's would end that one too, and when
        this one is aborted, so is what was committed.
        """

    def commit(self) -> int:
        """Commit what was produced. Returns the changelog position behind the changes.

        Raises `RecordsRefusedError` when nothing of it is visible and never will be; any other
        `LaneLostError` leaves the outcome open.
        """

    def write(self, records: Iterable[OutRecord], *, commit: bool) -> None:
        """Write records in a transaction of their own, and end it either way.

        Its markers end all that the id has open in their partitions. Raises `LaneLostError` as `produce` does.
        """

    def close(self) -> None:
        """Release the client; what is in flight is dropped."""


class LaneCluster(Protocol):
    """How one lane sees the cluster: its own transactional ids, changelog partition and output partitions.

    Every method may raise `LaneLostError`. They wait for a broker that is away, without end, unless the lane
    was told to stop.
    """

    def producer(self, index: int) -> TransactionalProducer:
        """A new client for the lane's transactional id of this index."""

    def changelog_id(self) -> str:
        """Id of the changelog topic."""

    def changelog_end(self) -> int:
        """End offset of the lane's changelog partition, open transactions included."""

    def read_changelog(self, start: int, end: int) -> Iterator[tuple[list[StateChange], int]]:
        """Committed changes from offset `start` on, at least up to `end`, in chunks, each with the position right
        behind its last change."""

    def is_committed(self, position: int) -> bool:
        """Whether the changelog has a committed record at this offset."""

    def command_range(self, topic: str) -> tuple[int, int]:
        """First and end offset of the lane's partition of a command topic."""

    def hung(self) -> list[LoggedRecord]:
        """What hangs in the partitions that only this lane writes: the record at each one's last stable offset, when
        that is not its end.

        Asked after `fence`, when no transaction of the lane is open: the marker of the record's transaction is missing.
        """

    def unread(self, is_own: Callable[[frozenset[str]], bool]) -> list[LoggedRecord]:
        """What of the lane's nobody can read yet in the partitions that other lanes write too: the records with
        which a transaction of its begins, of which `is_own(names)` holds. Before those of a partition the record at
        its last stable offset, whoever wrote it."""

    def is_visible(self, record: LoggedRecord) -> bool:
        """Whether a record that shares a name (`streams.transaction_names`) is committed in any other partition, not
        written long before."""

    def tails(self) -> list[LoggedRecord]:
        """The last record of each partition that only this lane writes, committed or not; of empty ones none."""

    def records(self, place: Place, *, committed: bool) -> Iterator[LoggedRecord]:
        """The records of a partition that only this lane writes, from a place (or what retention has left) to its
        end, or to its last stable offset when only the `committed` ones are wanted."""

    def close(self) -> None:
        """Release the clients."""
