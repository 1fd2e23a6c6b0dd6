"""Record batches as aiokafka reads them, but for header names that are not UTF-8; part of the Faust adapter.

aiokafka raises on such a name, over and over: one record of a careless client would stop its partition for good.
Here what is wrong in a name becomes U+FFFD, as in the Java client.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, SupportsIndex

from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records


def install() -> None:
    """Let all aiokafka consumers of this process read batches this way."""
    memory_records.DefaultRecordBatch = LenientBatch
    fetcher.MemoryRecords = memory_records._MemoryRecordsPy


class LenientBatch:
    """One record batch: aiokafka's own, read again in Python when that fails."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._batch = _NativeBatch(buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        read = 0
        try:
            for record in self._batch:
                read += 1
                yield record
        except UnicodeDecodeError:
            yield from islice(self._read_again(), read, None)

    def _read_again(self) -> Any:
        batch = default_records._DefaultRecordBatchPy(self._buffer)
        batch._maybe_uncompress()
        batch._buffer = _LenientBytes(batch._buffer)
        return batch

    def __next__(self) -> Any:
        return next(self._batch)


_NativeBatch = default_records.DefaultRecordBatch


class _LenientBytes(bytearray):
    """Bytes whose slices decode without failing."""

    def __getitem__(self, at: SupportsIndex | slice) -> Any:
        part = super().__getitem__(at)
        return _LenientBytes(part) if isinstance(part, bytearray) else part

    def decode(self, encoding: str = "utf-8", errors: str = "replace") -> str:
        return super().decode(encoding, "replace")
