"""Compact records, put aside on disk and read back bucket by bucket: what a verification holds at once is bounded.

Each record begins with a hash by which records are brought together; those of one hash are in one bucket, each
kind in the order in which it was put.
"""

from __future__ import annotations

import struct
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

R = TypeVar("R", bound=tuple[Any, ...])

_BUFFERED_BYTES = 16 * 1024 * 1024


class Channel(Generic[R]):
    """One kind of compact record: a named tuple of integers, the first of which is a 64-bit hash."""

    def __init__(self, row: type[R], layout: str) -> None:
        """`layout`: the fields as `struct` writes them, such as `qqB`."""
        self.row = row
        self.layout = struct.Struct(f"<{layout}")


class Spill:
    """A temporary file of compact records, in buckets. It is gone when it is closed, or with the process."""

    def __init__(self, buckets: int, *, buffered_bytes: int = _BUFFERED_BYTES) -> None:
        self.buckets = buckets
        self._buffered_bytes = buffered_bytes
        self._file = tempfile.TemporaryFile(prefix="runlane-verify-")  # noqa: SIM115 - `close` closes it.
        self._end = 0
        self._buffers: dict[Channel[Any], list[bytearray]] = {}
        self._extents: defaultdict[tuple[Channel[Any], int], list[tuple[int, int]]] = defaultdict(list)

    @property
    def bytes_on_disk(self) -> int:
        """Size of the file."""
        return self._end

    def writer(self, channel: Channel[Any]) -> Callable[..., None]:
        """The function that puts a record, given by its fields."""
        buffers = self._buffers.get(channel)
        if buffers is None:
            buffers = self._buffers[channel] = [bytearray() for _ in range(self.buckets)]
        pack, number = channel.layout.pack, self.buckets

        def write(key: int, *fields: int) -> None:
            buffers[key % number] += pack(key, *fields)

        return write

    def settle(self) -> None:
        """Move what is in memory to the disk, if it has become much; to be called every few thousand records."""
        total = sum(len(buffer) for buffers in self._buffers.values() for buffer in buffers)
        if total < self._buffered_bytes:
            return
        self._file.seek(self._end)
        for channel, buffers in self._buffers.items():
            for bucket, buffer in enumerate(buffers):
                if buffer:
                    self._file.write(buffer)
                    self._extents[channel, bucket].append((self._end, len(buffer)))
                    self._end += len(buffer)
                    buffer.clear()

    def rows(self, channel: Channel[R], bucket: int) -> Iterator[R]:
        """The records of one kind in one bucket, in the order in which they were put."""
        parts = []
        for offset, size in self._extents.get((channel, bucket), ()):
            self._file.seek(offset)
            parts.append(self._file.read(size))
        if channel in self._buffers:
            parts.append(bytes(self._buffers[channel][bucket]))
        # What `_make` does, without a Python call for each record.
        make: Callable[[Any], R] = partial(tuple.__new__, channel.row)
        return map(make, channel.layout.iter_unpack(b"".join(parts)))

    def close(self) -> None:
        """Delete the file."""
        self._file.close()
