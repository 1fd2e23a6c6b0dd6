"""What the changelog remembers of commands. The only place of the verification that knows how answers are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streams.lane_tables import ANSWERS
from streams.verify.digests import digest
from streams.verify.reading import ReadChange
from streams.verify.rows import Remembered

WriteAnswer = Callable[[int, int, int], None]
"""Takes the digests of key and command id, and what is remembered (`Remembered`)."""


def answer_readers(writers: Mapping[str, WriteAnswer], only: str | None) -> dict[str, ReadChange]:
    """The readers of the tables that hold answers, by table name.

    `writers`: where the answers of a command family go, by its name. `only`: no other keys.
    """

    def read(at: bytes, value: bytes | None, _: int) -> None:
        family, key, command_id = _parts(at)
        write = writers.get(family)
        if write is None or (only is not None and key != only):
            return
        state = Remembered.FORGOTTEN
        if value is not None:
            state = Remembered.ACCEPTED if ANSWERS.decode(value).ok else Remembered.REFUSED
        write(digest(key.encode()), digest(command_id), state)

    return {ANSWERS.name: read}


def _parts(at: bytes) -> list[str]:
    """As `Table.parts`: a key without escapes, as nearly all are, only has to be split."""
    return [*ANSWERS.parts(at)] if b"\1" in at else at.decode().split("\0")[1:-1]
