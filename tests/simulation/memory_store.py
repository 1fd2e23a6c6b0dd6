"""Disks in memory, with the local stores of a worker's lanes; see `streams.ports.StateStore`.

A disk can be lost, lose what was written last, come back as an older copy, or break.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from streams.ports import LaneLostError, StateChange, StoreBrokenError, StoreStamp

_KEPT_WRITES = 12

Write = tuple[list[StateChange], StoreStamp]


@dataclass
class DiskStore:
    """What lies on a disk for one lane."""

    data: dict[bytes, bytes] = field(default_factory=dict)
    keys: list[bytes] = field(default_factory=list)
    """Of `data`, in order."""
    stamp: StoreStamp | None = None
    recent: list[Write] = field(default_factory=list)
    """The last writes, on top of `base`."""
    base: dict[bytes, bytes] = field(default_factory=dict)
    base_stamp: StoreStamp | None = None
    is_broken: bool = False
    is_open: bool = False

    def write(self, changes: list[StateChange], stamp: StoreStamp) -> None:
        """Apply one write."""
        data, keys = self.data, self.keys
        for key, value in changes:
            if value is not None:
                if key not in data:
                    insort(keys, key)
                data[key] = value
            elif data.pop(key, None) is not None:
                del keys[bisect_left(keys, key)]
        self.stamp = stamp
        self.recent.append((changes, stamp))
        if len(self.recent) > 2 * _KEPT_WRITES:
            self._fold(_KEPT_WRITES)

    def lose_writes(self, count: int) -> int:
        """Go back by so many writes, or as many as are remembered; returns how many."""
        lost = min(count, len(self.recent))
        kept = self.recent[: len(self.recent) - lost]
        self.data, self.stamp = dict(self.base), self.base_stamp
        self.keys = sorted(self.data)
        self.recent = []
        for changes, stamp in kept:
            self.write(changes, stamp)
        return lost

    def copy(self) -> DiskStore:
        """A copy, as a backup would have it."""
        return DiskStore(dict(self.data), list(self.keys), self.stamp, [], dict(self.data), self.stamp)

    def _fold(self, kept: int) -> None:
        old, self.recent = self.recent[:-kept], self.recent[-kept:]
        for changes, stamp in old:
            for key, value in changes:
                if value is None:
                    self.base.pop(key, None)
                else:
                    self.base[key] = value
            self.base_stamp = stamp


class MemoryStore:
    """One lane's open store."""

    def __init__(self, disk: DiskStore, call: Callable[[str], None]) -> None:
        self._disk = disk
        self._call = call
        self._is_closed = False
        self.batch: Any = None
        """The lane's latest batch on this store, when batches are recorded."""

    def get(self, key: bytes) -> bytes | None:
        """See `streams.ports.StateStore`."""
        self._check()
        return self._disk.data.get(key)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See `streams.ports.StateStore`."""
        self._check()
        keys, data = self._disk.keys, self._disk.data
        first = bisect_left(keys, max(prefix, start) if start is not None else prefix)
        found = []
        for index in range(first, len(keys)):
            key = keys[index]
            if not key.startswith(prefix):
                break
            found.append((key, data[key]))
        return iter(found)

    def stamp(self) -> StoreStamp | None:
        """See `streams.ports.StateStore`."""
        self._check()
        return self._disk.stamp

    def write(self, changes: Iterable[StateChange], stamp: StoreStamp) -> None:
        """See `streams.ports.StateStore`."""
        self._call("store write")
        self._check()
        self._disk.write(list(changes), stamp)
        self._call("store written")

    def close(self) -> None:
        """See `streams.ports.StateStore`."""
        if not self._is_closed:
            self._is_closed = True
            self._disk.is_open = False

    def _check(self) -> None:
        if self._is_closed:
            raise StoreBrokenError("the store is closed")
        if self._disk.is_broken:
            raise StoreBrokenError("the disk fails")


class MemoryStores:
    """The stores on one disk. See `streams.ports.StoreFactory`."""

    def __init__(
        self, call: Callable[[str], None] = lambda name: None, disk: dict[int, DiskStore] | None = None
    ) -> None:
        """`call(name)` is called at every access that changes something; `disk`: what is there already."""
        self.lanes: dict[int, DiskStore] = {} if disk is None else disk
        self._call = call

    def open(self, partition: int) -> MemoryStore:
        """See `streams.ports.StoreFactory`."""
        self._call("store open")
        disk = self.lanes.setdefault(partition, DiskStore())
        if disk.is_open:
            raise LaneLostError("the local store is in use")
        if disk.is_broken:
            raise StoreBrokenError("the local store cannot be opened")
        disk.is_open = True
        return MemoryStore(disk, self._call)

    def destroy(self, partition: int) -> None:
        """See `streams.ports.StoreFactory`."""
        self._call("store destroy")
        self.lanes.pop(partition, None)
