"""Reads the dead letters of one lane beside its commands: both are in the order of the commands' offsets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from schemas import dead_letters
from schemas.errors import ErrorCode
from schemas.topics import COMMAND_TOPICS, DEAD_LETTERS
from streams.ports import HEAL_KEY
from streams.verify.findings import Place, Rule
from streams.verify.headers import headers_of, own_headers
from streams.verify.log_source import Record
from streams.verify.reading import Reading

DEAD_LETTER = Rule(
    "dead-letter",
    "Every dead letter is the command that its headers name, unchanged, and the only one of it.",
    "letters of commands that retention has removed",
)

NEVER = 2**63

_TIMER = -1
_LEFT_OUT = frozenset((dead_letters.KEY_BYTES, dead_letters.VALUE_BYTES, dead_letters.HEADERS_BYTES))


class Letter(NamedTuple):
    """The dead letter of a command."""

    place: Place
    offset: int
    """Of the command."""
    timestamp: int
    """Of the command."""
    code: str
    left_out: frozenset[str]
    """Which of key, value and headers were left out, by the headers that say so."""
    record: Record


class DeadLetterLog:
    """The dead letters of the commands in one partition of one topic, handed out as the commands are read."""

    def __init__(self, topic: str, partition: int, reading: Reading, *, reports_strays: bool) -> None:
        """`reports_strays`: also report letters that name no command topic at all; one reader has to."""
        self._topic = topic
        self._partition = partition
        self._reading = reading
        self._tally = reading.tally
        self._reports_strays = reports_strays
        self._letters = self._read()
        self._letter: Letter | None = None
        self.next_offset = NEVER
        """Offset of the next command that has a letter; nothing has to be asked about commands before it."""
        self._advance()
        self._first_offset = self.next_offset

    def of(self, command: Record) -> Letter | None:
        """The letter of a command, if it has one; to be asked in the order of the commands."""
        offset = command.offset()
        while self._letter is not None and self._letter.offset < offset:
            self._points_nowhere(self._letter)
        if self._letter is None or self._letter.offset != offset:
            return None
        letter = self._letter
        self._tally.checked(DEAD_LETTER)
        place = Place(self._topic, self._partition, offset)
        if unlike := _unlike(letter, command):
            self._tally.violation(
                DEAD_LETTER, letter.place, f"{unlike} differs from the command's at {place}", place
            )
        self._advance()
        while self._letter is not None and self._letter.offset == offset:
            self._tally.checked(DEAD_LETTER)
            self._tally.violation(
                DEAD_LETTER, self._letter.place, f"is a second one of {place}", letter.place
            )
            self._advance()
        return letter

    def may_be_removed(self, offset: int) -> bool:
        """Whether retention may have removed the letter of the command at an offset."""
        found = self._reading.source.range(DEAD_LETTERS.name, self._partition)
        return not found.is_whole and offset < self._first_offset

    def end(self) -> None:
        """All commands were read: what is left belongs to none."""
        while self._letter is not None:
            self._points_nowhere(self._letter)

    def _points_nowhere(self, letter: Letter) -> None:
        self._tally.checked(DEAD_LETTER)
        if letter.offset < self._reading.source.range(self._topic, self._partition).start:
            self._tally.unknown(DEAD_LETTER, "retention has removed the command")
        else:
            place = Place(self._topic, self._partition, letter.offset)
            self._tally.violation(
                DEAD_LETTER, letter.place, f"there is no command at {place}, or later letters came first"
            )
        self._advance()

    def _advance(self) -> None:
        self._letter = next(self._letters, None)
        self.next_offset = NEVER if self._letter is None else self._letter.offset

    def _read(self) -> Iterator[Letter]:
        """Those of this topic, without the notices of timers and of expired commands, which belong to no command."""
        source, only = self._reading.source, self._reading.cut.only
        topic = source.name(self._topic)
        others = {source.name(spec.name) for spec in COMMAND_TOPICS} - {topic}
        for records in source.read(DEAD_LETTERS.name, self._partition):
            for record in records:
                if (record.key() == HEAL_KEY and record.value() is None) or (
                    only is not None and record.key() != only
                ):
                    continue
                headers = dict(headers_of(record) or ())
                of = (headers.get(dead_letters.TOPIC) or b"").decode("utf-8", "replace")
                if of in others:
                    continue
                place = Place(DEAD_LETTERS.name, self._partition, record.offset())
                letter = _letter(place, headers, record) if of == topic else None
                if letter is not None:
                    if letter.offset != _TIMER and letter.code != ErrorCode.COMMANDS_EXPIRED:
                        yield letter
                elif of == topic or self._reports_strays:
                    self._tally.checked(DEAD_LETTER)
                    self._tally.violation(DEAD_LETTER, place, "its headers do not say which command it is")


def _letter(place: Place, headers: dict[str, bytes | None], record: Record) -> Letter | None:
    try:
        offset, partition, timestamp = (
            int(headers[name] or b"")
            for name in (dead_letters.OFFSET, dead_letters.PARTITION, dead_letters.TIMESTAMP)
        )
        code = (headers[dead_letters.CODE] or b"").decode()
    except (KeyError, ValueError):
        return None
    if partition != place.partition:
        return None
    return Letter(place, offset, timestamp, code, _LEFT_OUT.intersection(headers), record)


def _unlike(letter: Letter, command: Record) -> str:
    """In what a dead letter differs from its command; empty when in nothing."""
    left_out = letter.left_out
    if dead_letters.KEY_BYTES not in left_out and letter.record.key() != command.key():
        return "its key"
    if dead_letters.VALUE_BYTES not in left_out and letter.record.value() != command.value():
        return "its value"
    if letter.timestamp != command.timestamp()[1]:
        return "the time that it names"
    ours, theirs = headers_of(letter.record), headers_of(command)
    if (
        dead_letters.HEADERS_BYTES not in left_out
        and theirs is not None
        and own_headers(ours or ()) != own_headers(theirs)
    ):
        return "its headers"
    return ""
