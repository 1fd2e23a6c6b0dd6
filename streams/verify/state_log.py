"""Reads one partition of the changelog: how far the lane is, what it remembers, and the tables of the families."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.tables import Table
from schemas.stored import LaneProgress
from schemas.topics import STATE_CHANGELOG
from streams.lane_tables import PROGRESS, TIMERS, TIMERS_DUE, WINDOWS
from streams.ports import HEAL_KEY
from streams.verify.cut import LaneCut
from streams.verify.family import VerifiedFamily
from streams.verify.findings import Place, Rule
from streams.verify.reading import SCHEMA, ReadChange, Reading
from streams.verify.remembered_answers import answer_readers
from streams.verify.shapes import InvalidRecordError

WATERMARK = Rule(
    "watermark",
    "A lane's watermarks, clock and transaction numbers never go back, its commands are in the log, and no output "
    "is ahead of them for long.",
)

_OF_LANES = (TIMERS, TIMERS_DUE, WINDOWS)


class StateLog:
    """The changelog of one lane."""

    def __init__(self, families: Sequence[VerifiedFamily[Any]], partition: int, reading: Reading) -> None:
        only = reading.cut.only
        self._partition = partition
        self._reading = reading
        self._tally = reading.tally
        self._progress: tuple[LaneProgress, Place] | None = None
        readers: dict[str, ReadChange] = {table.name: _schema_only(table) for table in _OF_LANES}
        readers[PROGRESS.name] = self._read_progress
        writers = {family.family.name: reading.writer(family.answers) for family in families}
        more = {
            family.family.name: read
            for family in families
            if (read := family.answers_read(reading)) is not None
        }
        readers |= answer_readers(writers, more, None if only is None else only.decode())
        for family in families:
            readers |= {table.name: _schema_only(table) for table in family.state_tables}
            readers |= family.tables(partition, reading)
        self._readers = {name.encode(): read for name, read in readers.items()}

    def read(self) -> LaneCut:
        """Read all of it; returns what it says about the lane."""
        reading, partition, topic = self._reading, self._partition, STATE_CHANGELOG.name
        for records in reading.source.read_state(partition):
            for record in records:
                at = record.key() or b""
                read = self._readers.get(at.partition(b"\0")[0])
                try:
                    if read is not None:
                        read(at, record.value(), record.offset())
                    elif at != HEAL_KEY:
                        self._unknown_table(at, record.offset())
                except (*InvalidRecordError, ValueError, IndexError) as error:
                    reading.malformed(Place(topic, partition, record.offset()), error)
            self._tally.checked(SCHEMA, len(records))
            reading.took(len(records))
        progress = self._progress[0] if self._progress is not None else LaneProgress()
        return LaneCut(
            partition,
            reading.source.range(topic, partition).end,
            dict(progress.watermarks),
            progress.clock,
            progress.transactions,
        )

    def watermark_later(self, cut: LaneCut, topic: str, wanted: int) -> int:
        """The lane's watermark of a command topic after the cut: the wanted offset or more, or where it is now."""
        watermark = cut.watermarks.get(topic, -1)
        for records in self._reading.source.read_state_later(self._partition, cut.position):
            for record in records:
                if record.key() == PROGRESS.key() and (value := record.value()) is not None:
                    watermark = PROGRESS.decode(value).watermarks.get(topic, -1)
                    if watermark >= wanted:
                        return watermark
        return watermark

    def _unknown_table(self, at: bytes, offset: int) -> None:
        name = at.partition(b"\0")[0]
        if b"\0" in at and name.isascii() and name:
            self._tally.unknown(
                SCHEMA, f"records of the table {name.decode()}, which this version does not know"
            )
        else:
            self._reading.malformed(
                Place(STATE_CHANGELOG.name, self._partition, offset), "its key names no table"
            )

    def _read_progress(self, at: bytes, value: bytes | None, offset: int) -> None:
        place = Place(STATE_CHANGELOG.name, self._partition, offset)
        if value is None:
            raise ValueError("the lane's progress is deleted")
        progress = PROGRESS.decode(value)
        self._tally.checked(WATERMARK)
        if self._progress is not None:
            before, earlier = self._progress
            if went_back := _went_back(before, progress):
                self._tally.violation(WATERMARK, place, went_back, earlier)
        self._progress = progress, place

    @property
    def progress_place(self) -> Place:
        """Where the lane's progress stands."""
        if self._progress is None:
            return Place(STATE_CHANGELOG.name, self._partition, 0)
        return self._progress[1]


def _went_back(before: LaneProgress, after: LaneProgress) -> str:
    """What went back from one record of progress to the next; empty when nothing did."""
    for topic, offset in before.watermarks.items():
        now = after.watermarks.get(topic, -1)
        if now < offset:
            return f"the watermark of {topic} goes back from {offset} to {now}"
    if after.transactions <= before.transactions:
        return f"transaction {after.transactions} follows transaction {before.transactions}"
    if after.clock < before.clock:
        return f"the lane's clock goes back from {before.clock} to {after.clock}"
    return ""


def _schema_only(table: Table[Any]) -> ReadChange:
    decode = table.decode

    def read(_: bytes, value: bytes | None, __: int) -> None:
        if value is not None:
            decode(value)

    return read
