"""Record batches are read as aiokafka reads them, also when the name of a header is not UTF-8."""

from __future__ import annotations

import gzip
import struct

import pytest
from aiokafka import TopicPartition
from aiokafka.consumer import fetcher
from aiokafka.record._crecords import MemoryRecords as NativeRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from streams import fetched_records
from streams.ports import CommandRecord
from tests.contract.raw_produce import crc32c, record_batch

fetched_records.install({})

Read = list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def read(data: bytes) -> Read:
    """Key, value and headers of every record, by what the consumer uses."""
    records, found = fetcher.MemoryRecords(data), []
    while records.has_next():
        batch = records.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        found += [(record.key, record.value, record.headers) for record in batch]
    return found


def compressed(batch: bytes) -> bytes:
    """The batch of `record_batch` with its records compressed by gzip."""
    head, records = batch[:61], gzip.compress(batch[61:])
    checked = struct.pack(">h", 1) + head[23:] + records
    return (
        head[:8]
        + struct.pack(">i", 9 + len(checked))
        + head[12:17]
        + struct.pack(">I", crc32c(checked))
        + checked
    )


@pytest.mark.parametrize("packed", [False, True])
def test_what_is_wrong_in_a_header_name_is_replaced(packed: bool) -> None:
    batch = record_batch(b"\xff", b"\xfe", [(b"\xc3\xa9", b"\xfd"), (b"a\xffb", None), (b"", b"")])
    data = compressed(batch) if packed else batch
    assert read(data) == [(b"\xff", b"\xfe", [("é", b"\xfd"), ("a\ufffdb", None), ("", b"")])]


def test_a_nul_in_a_header_name_is_replaced_since_the_native_client_would_end_the_name_there() -> None:
    (record,) = fetcher.MemoryRecords(record_batch(b"k", b"v", [(b"correlation-id\0", b"c")])).next_batch()
    records = object.__new__(fetcher.PartitionRecords)
    records._name = "run-commands"
    command = records._consumer_record(TopicPartition("p-run-commands", 1), record)
    assert command == CommandRecord("run-commands", 1, 0, 0, b"k", b"v", [("correlation-id\ufffd", b"c")])


def test_a_batch_without_a_wrong_name_is_read_as_by_aiokafka() -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000_000)
    for number in range(500):
        builder.append(number, 1, b"%d" % number, None, [("n", b"%d" % number)])
    data = bytes(builder.build())
    theirs, expected = NativeRecords(data), []
    while theirs.has_next():
        expected += [(record.key, record.value, record.headers) for record in theirs.next_batch() or ()]
    assert len(expected) == 500
    assert read(data) == expected


def test_every_record_of_many_batches_is_read_once() -> None:
    names = [b"ok", b"\xff", b"ok", b"\xc3", b"\xff"]
    data = b"".join(record_batch(b"%d" % number, None, [(name, None)]) for number, name in enumerate(names))
    assert [key for key, _, _ in read(data)] == [b"0", b"1", b"2", b"3", b"4"]
