"""Readers of the outputs and tables of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents.run import tables
from agents.tables import Table
from schemas.dispatches import Dispatch
from schemas.events import LogEvent, ProgressEvent, StatusEvent, TerminalEvent
from schemas.json_codec import decode
from schemas.terminals import TerminalState
from schemas.topics import RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS, STATE_CHANGELOG
from streams.partitioner import partition_for
from streams.ports import HEAL_KEY
from streams.verify.digests import NOTHING, digest, end_digest, maker
from streams.verify.findings import Place
from streams.verify.log_source import Record
from streams.verify.reading import PARTITION, SCHEMA, ReadChange, Reading, ReadRecords
from streams.verify.run.rows import DISPATCHES, ENDS, EVENTS, HEADS, KEPT, TERMINALS, WAITS, Kind
from streams.verify.shapes import InvalidRecordError, reader_of, reader_of_kinds

_MAX_SEQ = 2**62


def output_reader(topic: str, partition: int, reading: Reading) -> ReadRecords:
    """The reader of one partition of an output topic of runs."""
    if topic == RUN_EVENTS.name:
        return _reader(topic, partition, reading, _events(partition, reading))
    if topic == RUN_TERMINALS.name:
        return _reader(topic, partition, reading, _terminals(partition, reading))
    if topic == RUN_DISPATCH.name:
        return _reader(topic, partition, reading, _dispatches(partition, reading))
    raise ValueError(f"{topic} is no output of runs")


def table_readers(partition: int, reading: Reading) -> Mapping[str, ReadChange]:
    """The readers of the tables of runs in one partition of the changelog."""
    return {
        tables.HEADS.name: _heads(partition, reading),
        tables.EVENTS.name: _kept(reading),
        tables.TERMINALS.name: _ends(reading),
        tables.WAITS.name: _waits(reading),
    }


_WriteOutput = Callable[[bytes, bytes, Record], str]
"""Writes the compact record of an output, given by key, value and record; returns the run id in its value."""


def _reader(topic: str, partition: int, reading: Reading, write: _WriteOutput) -> ReadRecords:
    only, partitions = reading.cut.only, reading.cut.partitions

    def read(records: Sequence[Record]) -> None:
        for record in records:
            key, value = record.key(), record.value()
            if only is not None and key != only:
                continue
            if key is None or value is None:
                if key != HEAL_KEY:
                    place = Place(topic, partition, record.offset())
                    reading.malformed(place, "it has no key" if key is None else "it has no value")
                continue
            if partition_for(key, partitions) != partition and not reading.is_own(
                key, topic, partition, record.offset()
            ):
                continue
            try:
                run_id = write(key, value, record)
            except (*InvalidRecordError, ValueError) as error:
                reading.malformed(Place(topic, partition, record.offset()), error)
                continue
            if run_id.encode() != key:
                reading.malformed(Place(topic, partition, record.offset()), "its `runId` is not its key")
        reading.tally.checked(SCHEMA, len(records))
        reading.tally.checked(PARTITION, len(records))

    return read


def _events(partition: int, reading: Reading) -> _WriteOutput:
    read, types = reader_of_kinds((StatusEvent, LogEvent, ProgressEvent, TerminalEvent))
    kinds = {struct: getattr(Kind, name.upper()) for struct, name in types.items()}
    write = reading.writer(EVENTS)

    def write_event(key: bytes, value: bytes, record: Record) -> str:
        event = read(value)
        kind, seq, ts = kinds[type(event)], event.seq, event.ts
        if not 0 < seq < _MAX_SEQ:
            raise ValueError(f"`seq` is {seq}")
        end = status = NOTHING
        if kind == Kind.TERMINAL:
            end = end_digest({**decode(value), "completedAt": ts})
            status = digest(event.status)
        write(
            digest(key),
            maker(event.command_id),
            seq,
            record.offset(),
            record.timestamp()[1],
            digest(value),
            digest(ts),
            end,
            status,
            partition,
            kind,
        )
        return str(event.run_id)

    return write_event


def _terminals(partition: int, reading: Reading) -> _WriteOutput:
    read, write = reader_of(TerminalState), reading.writer(TERMINALS)

    def write_terminal(key: bytes, value: bytes, record: Record) -> str:
        state = read(value)
        if not 0 < state.seq < _MAX_SEQ:
            raise ValueError(f"`seq` is {state.seq}")
        write(
            digest(key),
            maker(state.command_id),
            state.seq,
            record.offset(),
            record.timestamp()[1],
            end_digest(decode(value)),
            partition,
        )
        return str(state.run_id)

    return write_terminal


def _dispatches(partition: int, reading: Reading) -> _WriteOutput:
    read, write = reader_of(Dispatch), reading.writer(DISPATCHES)

    def write_dispatch(key: bytes, value: bytes, record: Record) -> str:
        dispatch = read(value)
        write(digest(key), maker(dispatch.command_id), record.offset(), record.timestamp()[1], partition)
        return str(dispatch.run_id)

    return write_dispatch


def _heads(partition: int, reading: Reading) -> ReadChange:
    run_of, write = _run_of(tables.HEADS, reading, 0), reading.writer(HEADS)

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        run = run_of(at)
        if run is None or not reading.is_own(run, STATE_CHANGELOG.name, partition, offset):
            return
        if value is None:
            write(digest(run), offset, -1, NOTHING, 0, 0, 0, partition, False, False)
            return
        head = tables.HEADS.decode(value)
        status = digest(head.status) if head.status is not None else NOTHING
        write(
            digest(run),
            offset,
            head.latest_seq,
            status,
            head.submit_seq,
            head.calls,
            head.traces,
            partition,
            head.ended_at is not None,
            head.evicted,
        )

    return read


def _kept(reading: Reading) -> ReadChange:
    run_of, write = _run_of(tables.EVENTS, reading, _SEQ_BYTES), reading.writer(KEPT)

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        run = run_of(at)
        if run is not None:
            seq = int.from_bytes(at[-_SEQ_BYTES:], "big")
            write(digest(run), seq, digest(value) if value is not None else NOTHING, offset)

    return read


def _ends(reading: Reading) -> ReadChange:
    run_of, write = _run_of(tables.TERMINALS, reading, 0), reading.writer(ENDS)

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        run = run_of(at)
        if run is not None:
            write(digest(run), end_digest(decode(value)) if value is not None else NOTHING, offset)

    return read


def _waits(reading: Reading) -> ReadChange:
    write, only = reading.writer(WAITS), reading.cut.only

    def read(at: bytes, value: bytes | None, _: int) -> None:
        run = str(tables.WAITS.parts(at)[0]).encode()
        if only is not None and run != only:
            return
        command = correlation = NOTHING
        if value is not None:
            wait = tables.WAITS.decode(value)
            command, correlation = digest(wait.command_id), digest(wait.correlation_id)
        write(digest(run), digest(at), command, correlation)

    return read


_SEQ_BYTES = 8


def _run_of(table: Table[Any], reading: Reading, behind: int) -> Callable[[bytes], bytes | None]:
    """The run id in a key of a table whose first part it is, with so many bytes behind it; None for one of no interest.

    As `Table.parts` reads it, without the other parts: there are millions.
    """
    begin, end, only = len(table.prefix), -behind - 1, reading.cut.only

    def run_of(at: bytes) -> bytes | None:
        run = at[begin:end]
        if b"\1" in run or b"\0" in run or at[end] != 0:
            run = str(table.parts(at)[0]).encode()
        return run if only is None or run == only else None

    return run_of
