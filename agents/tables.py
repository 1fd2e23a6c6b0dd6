"""Tables: named parts of a lane's state, with typed keys and one record type each (DESIGN 1, 4).

State is many small keys. A table turns a key's parts into bytes that sort as the parts do, so that records
which share the first parts of their key lie side by side and can be scanned by prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Generic, TypeVar

from schemas.stored import Stored, encode_record, record_decoder

R = TypeVar("R")
S = TypeVar("S", bound=Stored)

KeyPart = str | int

_INT_BYTES = 8


def encode_part(part: KeyPart) -> bytes:
    """Order-preserving bytes of one part, never the beginning of another's: a string ends with its only NUL
    (inside, byte 0 becomes 1 1 and byte 1 becomes 1 2), an integer (0..2^64-1) has 8 bytes."""
    return _encode_text(part) if isinstance(part, str) else part.to_bytes(_INT_BYTES, "big")


@lru_cache(maxsize=10_000)
def _encode_text(text: str) -> bytes:
    return text.encode().replace(b"\1", b"\1\2").replace(b"\0", b"\1\1") + b"\0"


class Table(Generic[R]):
    """Declaration of a table: `name`, the types of its key's parts, and how a record becomes bytes.

    The name is the first part of every key, in the store and in the changelog; it never changes.
    """

    def __init__(
        self,
        name: str,
        key: tuple[type[KeyPart], ...],
        encode: Callable[[R], bytes],
        decode: Callable[[bytes], R],
    ) -> None:
        self.name = name
        self.key_types = key
        self.encode = encode
        self.decode = decode
        self.prefix = encode_part(name)
        self._is_text = all(kind is str for kind in key)

    def key(self, *parts: KeyPart) -> bytes:
        """Bytes of a whole key, or of its first parts as the prefix of a scan."""
        if self._is_text and parts:
            # What every command does several times; what has to be escaped is rare and takes the long way.
            text = "\0".join(parts)  # type: ignore[arg-type]
            if text.count("\0") == len(parts) - 1 and "\1" not in text:
                return self.prefix + text.encode() + b"\0"
        data = self.prefix
        for part in parts:
            data += _encode_text(part) if type(part) is str else encode_part(part)
        return data

    def parts(self, key: bytes) -> tuple[Any, ...]:
        """The parts of a whole key's bytes; the inverse of `key`."""
        at = len(self.prefix)
        parts: list[Any] = []
        for kind in self.key_types:
            if kind is int:
                parts.append(int.from_bytes(key[at : at + _INT_BYTES], "big"))
                at += _INT_BYTES
            else:
                end = key.index(b"\0", at)
                parts.append(key[at:end].replace(b"\1\1", b"\0").replace(b"\1\2", b"\1").decode())
                at = end + 1
        return tuple(parts)

    def __repr__(self) -> str:
        return f"Table({self.name})"


def record_table(
    name: str,
    key: tuple[type[KeyPart], ...],
    record: type[S],
    upgrades: Mapping[type[Stored], Callable[[Any], S]] | None = None,
) -> Table[S]:
    """A table whose records are `record`s, stored as JSON with their schema version.

    `upgrades`: see `schemas.stored.record_decoder`.
    """
    return Table(name, key, encode_record, record_decoder(record, upgrades))


def raw_table(name: str, key: tuple[type[KeyPart], ...]) -> Table[bytes]:
    """A table whose records are bytes that are used as they are (such as an event's JSON)."""
    return Table(name, key, _same, _same)


def _same(data: bytes) -> bytes:
    return data
