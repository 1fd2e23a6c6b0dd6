"""Reads a command topic, each command beside its dead letter if it has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from schemas.envelope import (
    MAX_COMMAND_ID_CHARACTERS,
    MAX_KEY_BYTES,
    Envelope,
    EnvelopeError,
    read_envelope,
)
from schemas.errors import ErrorCode
from schemas.replies import ReplyAddress
from streams.partitioner import partition_for
from streams.verify.command_rules import COMMAND
from streams.verify.dead_letter_log import DeadLetterLog, Letter
from streams.verify.digests import NOTHING, digest
from streams.verify.family import VerifiedFamily
from streams.verify.findings import Place
from streams.verify.headers import Headers, headers_of, reply_address
from streams.verify.log_source import Record
from streams.verify.reading import Reading
from streams.verify.rows import EXPECTED, Fate, Says
from streams.verify.shapes import InvalidRecordError, reader_of_fields

_ANY_SIZE = 2**40
_ANYTHING = Says.YES | Says.NO | Says.LATER


class CommandLog:
    """The commands of one partition of a family's topic."""

    def __init__(
        self, family: VerifiedFamily[Any], number: int, partition: int, reading: Reading, fates: Counter[str]
    ) -> None:
        """`number` is the family's position among all; `fates` counts what became of the commands."""
        self._family = family
        self._number = number
        self._partition = partition
        self._reading = reading
        self._fates = fates
        self._tally = reading.tally
        self._commands = family.family.commands
        self._types = {name: position for position, name in enumerate(self._commands.by_type)}
        self._write = reading.writer(family.commands)
        self._readers = family.commands_read(reading)
        self._expect = reading.writer(EXPECTED)
        self._watermark = reading.cut.watermark(family.topic, partition)
        self._partitions = reading.cut.partitions
        self._decode = reader_of_fields(
            "Command", type=("type", str), command_id=("commandId", str), id=(self._commands.id_field, str)
        )

    def read(self) -> None:
        """Read all of it."""
        reading, topic, partition = self._reading, self._family.topic, self._partition
        letters = self._letters = DeadLetterLog(topic, partition, reading, reports_strays=self._number == 0)
        only, alive = reading.cut.only, self._alive()
        for records in reading.source.read(topic, partition):
            for record in records:
                if only is not None and record.key() != only:
                    continue
                letter = letters.of(record) if record.offset() >= letters.next_offset else None
                if letter is not None:
                    self._dead(record, letter)
                else:
                    alive(record)
            reading.took(len(records))
        letters.end()

    def _alive(self) -> Callable[[Record], None]:
        """The reader of a command without a dead letter, which is most of what there is to read."""
        decode, types, write, readers = self._decode, self._types, self._write, self._readers
        partition, partitions, irregular = self._partition, self._partitions, self._irregular

        def read(record: Record) -> None:
            value, headers = record.value() or b"", headers_of(record)
            try:
                command = decode(value)
                key, command_id, type_ = command.id.encode(), command.command_id, types[command.type]
            except (*InvalidRecordError, KeyError):
                irregular(record, headers or ())
                return
            if (
                key != record.key()
                or not 1 <= len(key) <= MAX_KEY_BYTES
                or not 1 <= len(command_id) <= MAX_COMMAND_ID_CHARACTERS
            ):
                irregular(record, headers or ())
                return
            correlation = reply_partition = 0
            if headers:
                address = reply_address(headers, partitions)
                if address is not None:
                    reply_partition, correlation = address.partition, digest(address.correlation_id)
            elif headers is None:
                self._reading.hidden_addresses += 1
            owner, entity = partition_for(key, partitions), digest(key)
            write(
                entity,
                digest(command_id),
                record.offset(),
                record.timestamp()[1],
                correlation,
                digest(value),
                partition,
                owner,
                reply_partition,
                type_,
                Fate.TAKEN if owner == partition else Fate.MISPLACED,
            )
            if command.type in readers and owner == partition:
                readers[command.type](entity, record.offset(), value)

        return read

    def _dead(self, record: Record, letter: Letter) -> None:
        """A command with a dead letter: it had no effect, and if it asked, it was told why."""
        if record.offset() <= self._watermark:
            self._tally.checked(COMMAND)
            self._fates["dead-lettered"] += 1
        else:
            self._fates["pending"] += 1
        key = record.key()
        envelope, fault = self._envelope(record, headers_of(record) or ())
        if envelope is not None and key is not None:
            self._write(
                digest(key),
                digest(envelope.command_id),
                record.offset(),
                record.timestamp()[1],
                NOTHING,
                NOTHING,
                self._partition,
                partition_for(key, self._partitions),
                0,
                self._types[envelope.type],
                Fate.DEAD,
            )
        command_id, address = _asked(envelope, fault)
        if letter.code == ErrorCode.COMMAND_TOO_LARGE:
            command_id = None
        if address is not None:
            self._note(record, command_id, address, digest(letter.code), Says.NO)

    def _irregular(self, record: Record, headers: Headers) -> None:
        """A command that looks wrong and has no dead letter."""
        envelope, fault = self._envelope(record, headers)
        if record.offset() > self._watermark:
            self._fates["pending"] += 1
        elif fault is not None and fault.code == ErrorCode.UNKNOWN_COMMAND:
            self._tally.checked(COMMAND)
            self._fates["not checkable"] += 1
            self._tally.unknown(COMMAND, "a type of command that this version does not know")
        elif self._letters.may_be_removed(record.offset()):
            self._tally.checked(COMMAND)
            self._fates["not checkable"] += 1
            self._tally.unknown(COMMAND, "a wrong command whose dead letter retention may have removed")
        else:
            self._tally.checked(COMMAND)
            self._fates["lost"] += 1
            place = Place(self._family.topic, self._partition, record.offset())
            why = fault.code.value if fault is not None else "it cannot be read"
            self._tally.violation(COMMAND, place, f"is wrong ({why}), but there is no dead letter")
        command_id, address = _asked(envelope, fault)
        if address is not None:
            self._note(record, command_id, address, NOTHING, _ANYTHING)

    def _envelope(self, record: Record, headers: Headers) -> tuple[Envelope | None, EnvelopeError | None]:
        """The envelope, or what is wrong with it. Its size may be anything: the workers' limit is not known here."""
        try:
            return read_envelope(
                self._commands,
                record.key(),
                record.value(),
                headers,
                reply_partitions=self._partitions,
                max_bytes=_ANY_SIZE,
            ), None
        except EnvelopeError as error:
            return None, error

    def _note(
        self, record: Record, command_id: str | None, address: ReplyAddress, code: int, says: int
    ) -> None:
        """Note what the reply to a command that had no effect has to say."""
        correlation = digest(address.correlation_id)
        command = digest(command_id) if command_id is not None else NOTHING
        if record.offset() > self._watermark:
            says, code = _ANYTHING, NOTHING
        self._expect(
            command or correlation,
            digest(record.key() or b""),
            command,
            correlation,
            record.offset(),
            record.timestamp()[1],
            -1,
            NOTHING,
            NOTHING,
            code,
            0,
            NOTHING,
            NOTHING,
            NOTHING,
            NOTHING,
            self._partition,
            address.partition,
            self._number,
            says,
        )


def _asked(envelope: Envelope | None, fault: EnvelopeError | None) -> tuple[str | None, ReplyAddress | None]:
    """The command's id and its reply address, as far as they can be read."""
    found = envelope if envelope is not None else fault
    return (found.command_id, found.reply_to) if found is not None else (None, None)
