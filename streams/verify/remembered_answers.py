"""What the changelog remembers of commands. The only place of the verification that knows how answers are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from streams.lane_tables import ANSWERS
from streams.verify.digests import NOTHING, digest, reply_digest
from streams.verify.reading import ReadAnswer, ReadChange
from streams.verify.rows import Remembered

WriteAnswer = Callable[[int, int, int, int, int], None]
"""Takes the fields of `AnswerSeen`."""

_NUMBERS = ("fencingNumber", "attempts", "count", "published")
_MOST = 2**62


def answer_readers(
    writers: Mapping[str, WriteAnswer], more: Mapping[str, ReadAnswer], only: str | None
) -> dict[str, ReadChange]:
    """The readers of the tables that hold answers, by table name.

    `writers`: where the answers of a command family go, by its name; `more`: what else reads them, if anything.
    `only`: no other keys.
    """

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        family, key, command_id = _parts(at)
        write = writers.get(family)
        if write is None or (only is not None and key != only):
            return
        if value is None:
            write(digest(key.encode()), digest(command_id), NOTHING, -1, Remembered.FORGOTTEN)
            return
        answer = ANSWERS.decode(value)
        ok, body = answer.ok, answer.body
        write(
            digest(key.encode()),
            digest(command_id),
            NOTHING if answer.by_reference else reply_digest(command_id, body, ok=ok),
            -1 if "seq" in body or not ok else _number(body),
            Remembered.ACCEPTED if ok else Remembered.REFUSED,
        )
        if ok and family in more:
            more[family](digest(key.encode()), digest(command_id), body, offset)

    return {ANSWERS.name: read}


def _number(body: Mapping[str, Any]) -> int:
    """The fencing number or the count that an answer hands out, or 1 when it says that a result was published."""
    if body.get("claimed") is False:
        return -1
    for name in _NUMBERS:
        number = body.get(name)
        if isinstance(number, int) and number < _MOST:
            return int(number) or -1
    return -1


def _parts(at: bytes) -> list[str]:
    """As `Table.parts`: a key without escapes, as nearly all are, only has to be split."""
    return [*ANSWERS.parts(at)] if b"\1" in at else at.decode().split("\0")[1:-1]
