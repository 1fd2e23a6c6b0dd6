"""Produce one record byte by byte: what client libraries refuse to send, such as a header name not in UTF-8.

Speaks Produce version 7 and record batch format 2 (https://kafka.apache.org/protocol). Imports nothing of
ours.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence

RawHeaders = Sequence[tuple[bytes, bytes | None]]

_PRODUCE, _PRODUCE_VERSION = 0, 7
_NOT_LEADER = 6
_CRC32C_POLYNOMIAL = 0x82F63B78


def produce(
    address: str,
    topic: str,
    partition: int,
    key: bytes | None,
    value: bytes | None,
    headers: RawHeaders = (),
    *,
    timeout_s: float = 10.0,
) -> int:
    """Append one record by way of the partition's leader at `address` (host:port); returns its offset."""
    batch = record_batch(key, value, headers)
    body = struct.pack(">hhi", -1, -1, int(timeout_s * 1000))
    body += struct.pack(">i", 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    request = struct.pack(">hhi", _PRODUCE, _PRODUCE_VERSION, 1) + _string("bare-client") + body
    deadline = time.monotonic() + timeout_s
    while True:
        index, error, offset = _exchange(address, request, topic, timeout_s)
        # A topic that was just made may not be there yet for its leader.
        if error == _NOT_LEADER and time.monotonic() < deadline:
            time.sleep(0.05)
            continue
        if index != partition or error:
            raise RuntimeError(f"the broker refused the record: Kafka error {error}")
        return offset


def _exchange(address: str, request: bytes, topic: str, timeout_s: float) -> tuple[int, int, int]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = _read(connection, struct.unpack(">i", _read(connection, 4))[0])
    at = 4 + 4 + 2 + len(topic.encode()) + 4
    return struct.unpack_from(">ihq", answer, at)


def record_batch(key: bytes | None, value: bytes | None, headers: RawHeaders) -> bytes:
    """A batch (magic 2, not compressed) with one record."""
    record = b"\0" + _varint(0) + _varint(0) + _varbytes(key) + _varbytes(value) + _varint(len(headers))
    for name, content in headers:
        record += _varbytes(name) + _varbytes(content)
    records = _varint(len(record)) + record
    # Attributes, last offset delta, two timestamps, producer id, epoch, first sequence, count of records.
    checked = struct.pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + records
    after_length = struct.pack(">ibI", -1, 2, crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(after_length)) + after_length


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of `data`."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc_table() -> tuple[int, ...]:
    table = []
    for entry in range(256):
        for _ in range(8):
            entry = (entry >> 1) ^ (_CRC32C_POLYNOMIAL if entry & 1 else 0)
        table.append(entry)
    return tuple(table)


_CRC_TABLE = _crc_table()


def _varint(number: int) -> bytes:
    zigzag, out = (number << 1) ^ (number >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _varbytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise RuntimeError("the broker closed the connection")
        data += chunk
    return data
