"""Reads what the changelog keeps in the slots of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agents.run import tables
from agents.tables import Table
from schemas.json_codec import decode
from streams.verify.digests import NOTHING, digest
from streams.verify.reading import ReadChange, Reading
from streams.verify.run import contents
from streams.verify.run.slot_rows import CALLS, OUTCOMES, SLOTS, TRACES


def slot_readers(partition: int, reading: Reading) -> Mapping[str, ReadChange]:
    """The readers of the tables of slots in one partition of the changelog."""

    def child(parts: list[Any]) -> int:
        return contents.child_slot(str(parts[1]))

    return {
        tables.CHILDREN.name: _slots(tables.CHILDREN, reading, child, _child),
        tables.RETRY_PARAMS.name: _slots(
            tables.RETRY_PARAMS, reading, lambda _: contents.RETRY, _retry_params
        ),
        tables.RETRIES.name: _slots(tables.RETRIES, reading, lambda _: contents.ATTEMPTS, _attempts),
        tables.SESSIONS.name: _slots(tables.SESSIONS, reading, lambda _: contents.SESSIONS, _sessions),
        tables.INSTANCES.name: _slots(tables.INSTANCES, reading, lambda _: contents.INSTANCE, _instance),
        tables.CALLS.name: _calls(partition, reading),
        tables.CALL_RESULTS.name: _outcomes(reading),
        tables.TRACES.name: _traces(reading),
    }


def _run_of(parts: list[Any], only: bytes | None) -> int | None:
    """The digest of the run id in a key; None for a run of no interest."""
    run = str(parts[0]).encode()
    return digest(run) if only is None or run == only else None


def _slots(
    table: Table[Any],
    reading: Reading,
    slot_of: Callable[[list[Any]], int],
    content_of: Callable[[bytes], int],
) -> ReadChange:
    write, only = reading.writer(SLOTS), reading.cut.only

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        parts = [*table.parts(at)]
        if (run := _run_of(parts, only)) is not None:
            write(run, slot_of(parts), NOTHING if value is None else content_of(value), offset)

    return read


def _object(value: bytes) -> dict[str, Any]:
    found = decode(value)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def _child(value: bytes) -> int:
    state = _object(value)
    return contents.child_content(str(state.get("eventKey")), state.get("data"))


def _retry_params(value: bytes) -> int:
    return contents.retry_content(_object(value))


def _attempts(value: bytes) -> int:
    # So that no number of attempts is `NOTHING`.
    return tables.RETRIES.decode(value).attempts + 1


def _sessions(value: bytes) -> int:
    return contents.sessions_content(decode(bytes(tables.SESSIONS.decode(value).sessions)))


def _instance(value: bytes) -> int:
    stored = tables.INSTANCES.decode(value)
    return contents.instance_content(stored.instance_id, stored.attempt, stored.ttl_ms)


def _calls(partition: int, reading: Reading) -> ReadChange:
    write, only = reading.writer(CALLS), reading.cut.only

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        parts = [*tables.CALLS.parts(at)]
        run = _run_of(parts, only)
        if run is None:
            return
        slot = contents.call_slot(str(parts[1]), str(parts[2]))
        if value is None:
            write(run, slot, 0, 0, offset, partition, False)
            return
        call = tables.CALLS.decode(value)
        write(run, slot, call.number, call.fencing_number, offset, partition, call.ok is not None)

    return read


def _outcomes(reading: Reading) -> ReadChange:
    write, only = reading.writer(OUTCOMES), reading.cut.only

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        parts = [*tables.CALL_RESULTS.parts(at)]
        if (run := _run_of(parts, only)) is not None:
            content = NOTHING if value is None else contents.outcome_content(_object(value))
            write(run, int(parts[1]), content, offset)

    return read


def _traces(reading: Reading) -> ReadChange:
    write, only = reading.writer(TRACES), reading.cut.only

    def read(at: bytes, value: bytes | None, offset: int) -> None:
        parts = [*tables.TRACES.parts(at)]
        if (run := _run_of(parts, only)) is not None:
            if value is not None:
                _object(value)
            write(run, int(parts[1]), offset, value is not None)

    return read
