"""How aiokafka makes records of what it fetched, for command topics; part of the Faust adapter.

aiokafka raises on a header name that is not UTF-8, over and over: one record of a careless client would stop its
partition for good. Here what is wrong in a name becomes U+FFFD, as in the Java client. So does a NUL: the native
client, which sends headers on, would end the name there and make it another one. And each record becomes a
`CommandRecord` at once: aiokafka's own kind of record costs more than to decode the command in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, SupportsIndex

from aiokafka.consumer import fetcher
from aiokafka.record import default_records, memory_records

from streams.ports import CommandRecord


def install(short_names: Mapping[str, str]) -> None:
    """Let all aiokafka consumers of this process read this way.

    `short_names`: full name of each command topic -> the one without prefix; other topics keep their names.
    """
    CommandRecords.short_names = short_names
    fetcher.PartitionRecords = CommandRecords
    memory_records.DefaultRecordBatch = LenientBatch
    fetcher.MemoryRecords = memory_records._MemoryRecordsPy


class CommandRecords(fetcher.PartitionRecords):
    """The records of one fetched partition."""

    short_names: Mapping[str, str] = {}

    def __init__(self, tp: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(tp, *args, **kwargs)
        self._name = self.short_names.get(tp.topic, tp.topic)

    def __iter__(self) -> Iterator[CommandRecord]:
        # Without a Python call per record; the generator is dropped with the fetch.
        return self._records_iterator  # type: ignore[no-any-return]

    def _consumer_record(self, tp: Any, record: Any) -> CommandRecord:
        headers = record.headers or ()
        for name, _ in headers:
            if "\0" in name:
                headers = [(name.replace("\0", "\ufffd"), value) for name, value in headers]
                break
        return CommandRecord(
            self._name,
            tp.partition,
            record.offset,
            record.timestamp,
            record.key,
            record.value,
            headers,
        )


class LenientBatch:
    """One record batch: aiokafka's own, read again in Python when that fails."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer
        self._batch = _NativeBatch(buffer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __iter__(self) -> Iterator[Any]:
        try:
            return iter(list(self._batch))
        except UnicodeDecodeError:
            return iter(self._read_again())

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
