"""Readers of what the topics hold about rate buckets: their tables, remembered answers, and the ends of grants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from agents.rate import tables
from agents.rate.counters import rule_name, rule_of
from agents.rate.granting import EXPIRE, lease_key
from agents.tables import Table
from schemas.json_codec import decode
from schemas.rate_commands import RateRelease, RateSettle
from schemas.stored_rates import Limit
from streams.lane_tables import TIMERS_DUE
from streams.verify.digests import NOTHING, digest
from streams.verify.rate.rows import (
    ENDS,
    GRANTS,
    HEADS,
    KEPT,
    KINDS,
    LEASES,
    STARTS,
    TIMERS,
    TOLD,
    WAITS,
)
from streams.verify.reading import ReadAnswer, ReadChange, ReadCommand, Reading

_EXPIRE_TIMERS = TIMERS_DUE.key("rate")
_MOST = 2**62


def table_readers(partition: int, reading: Reading) -> Mapping[str, ReadChange]:
    """The readers of the tables in one partition of the changelog, by table name."""
    only = reading.cut.only
    write_head, write_wait, write_start = (reading.writer(rows) for rows in (HEADS, WAITS, STARTS))
    write_lease, write_kept, write_timer = (reading.writer(rows) for rows in (LEASES, KEPT, TIMERS))
    write_grant = reading.writer(GRANTS)

    def read_head(at: bytes, value: bytes | None, offset: int) -> None:
        bucket = _bucket(tables.BUCKETS, at)
        head = None if value is None else tables.BUCKETS.decode(value)
        if only in (None, bucket):
            counts = (0, 0) if head is None else (head.leases, head.waiting)
            write_head(digest(bucket), offset, *counts, partition)
            for name, state in () if head is None else head.rules.items():
                rule = rule_of(name, state)
                if rule.kind == "window" and rule.window_ms:
                    write_start(digest(bucket), _rule(rule), state.start, rule.window_ms, offset)

    def note_grant(
        bucket: bytes,
        grant: int,
        times: tuple[int, int],
        permits: int,
        offset: int,
        limits: Iterable[Limit],
        is_block: bool,
    ) -> None:
        for limit in limits:
            if limit.window_ms or limit.concurrency:
                write_grant(
                    digest(bucket),
                    grant,
                    *times,
                    permits,
                    offset,
                    _rule(limit),
                    limit.window_ms,
                    limit.permits,
                    limit.concurrency,
                    KINDS.index(limit.kind),
                    is_block,
                )

    def read_lease(at: bytes, value: bytes | None, offset: int) -> None:
        bucket_id, expires_at, number = tables.LEASES.parts(at)
        lease, bucket = None if value is None else tables.LEASES.decode(value), bucket_id.encode()
        if only not in (None, bucket):
            return
        write_lease(digest(bucket), number, expires_at, offset, lease is not None)
        if lease is not None:
            times = (lease.granted_at, expires_at)
            note_grant(bucket, number, times, lease.permits, offset, lease.limits, lease.is_block)

    def read_kept(at: bytes, value: bytes | None, offset: int) -> None:
        bucket_id, command_id = tables.GRANTS.parts(at)
        kept, bucket = None if value is None else tables.GRANTS.decode(value), bucket_id.encode()
        if only not in (None, bucket):
            return
        command = digest(command_id)
        write_kept(digest(bucket), command, 0 if kept is None else kept.granted_at)
        if kept is not None:
            note_grant(bucket, command, (kept.granted_at, 0), kept.permits, offset, kept.limits, False)

    def read_wait(at: bytes, value: bytes | None, _: int) -> None:
        bucket = _bucket(tables.WAITS, at)
        command = NOTHING if value is None else digest(tables.WAITS.decode(value).command_id)
        if only in (None, bucket):
            write_wait(digest(bucket), digest(at), command)

    def read_timer(at: bytes, value: bytes | None, _: int) -> None:
        timer = None if value is None else TIMERS_DUE.decode(value)
        if at.startswith(_EXPIRE_TIMERS):
            _, bucket_id, name = TIMERS_DUE.parts(at)
            if name == EXPIRE and only in (None, bucket_id.encode()):
                write_timer(digest(bucket_id.encode()), -1 if timer is None else timer.due)

    return {
        tables.BUCKETS.name: read_head,
        tables.LEASES.name: read_lease,
        tables.GRANTS.name: read_kept,
        tables.WAITS.name: read_wait,
        TIMERS_DUE.name: read_timer,
    }


def answer_reader(reading: Reading) -> ReadAnswer:
    """The reader of answers: what was granted to whom."""
    write = reading.writer(TOLD)

    def read(key: int, command: int, result: Mapping[str, Any], offset: int) -> None:
        granted, granted_at = result.get("granted"), result.get("grantedAt")
        if not granted or not isinstance(granted_at, int):
            return
        number, expires_at = result.get("fencingNumber"), result.get("expiresAt")
        has_lease = isinstance(number, int) and isinstance(expires_at, int)
        if not has_lease:
            number = expires_at = 0
        if all(
            isinstance(value, int) and value < _MOST for value in (granted, granted_at, number, expires_at)
        ):
            write(key, number or command, granted_at, expires_at, granted, offset)

    return read


def end_readers(reading: Reading) -> Mapping[str, ReadCommand]:
    """The readers of the commands that end a grant, or say how much of it was used, by their type."""
    write = reading.writer(ENDS)

    def read_release(key: int, offset: int, value: bytes) -> None:
        try:
            command = RateRelease.model_validate(decode(value))
        except ValidationError:
            return
        at = lease_key("", command.lease_id)
        if at is not None and at[2] == command.fencing_number:
            write(key, at[2], offset, -1)

    def read_settle(key: int, offset: int, value: bytes) -> None:
        try:
            command = RateSettle.model_validate(decode(value))
        except ValidationError:
            return
        if command.lease_id is None:
            write(key, digest(command.acquire_command_id or ""), offset, command.used)
        elif at := lease_key("", command.lease_id):
            write(key, at[2], offset, command.used)

    return {"rate.release": read_release, "rate.settle": read_settle}


def _rule(limit: Limit) -> int:
    return hash(rule_name(limit))


def _bucket(table: Table[Any], at: bytes) -> bytes:
    """The bucket id in a key."""
    return str(table.parts(at)[0]).encode()
