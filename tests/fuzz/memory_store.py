"""A lane's local store in memory."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from streams.ports import StateChange, StoreStamp


class MemoryStore:
    """An ordered map of bytes. See `streams.ports.StateStore`."""

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        self._stamp: StoreStamp | None = None

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        return self.state.get(key)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """All pairs whose key begins with `prefix`, in key order, from key `start` on."""
        at = bisect_left(self._keys, prefix if start is None else max(prefix, start))
        while at < len(self._keys) and (key := self._keys[at]).startswith(prefix):
            yield key, self.state[key]
            at += 1

    def stamp(self) -> StoreStamp | None:
        """What the store stands for; None when it is new."""
        return self._stamp

    def write(self, changes: Iterable[StateChange], stamp: StoreStamp) -> None:
        """Apply changes and the new stamp."""
        for key, value in changes:
            if value is None:
                if self.state.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self.state:
                    insort(self._keys, key)
                self.state[key] = value
        self._stamp = stamp

    def close(self) -> None:
        """Nothing to release."""
