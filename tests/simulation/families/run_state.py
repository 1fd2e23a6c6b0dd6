"""What always holds for the state of runs, record by record in the changelog and in what is left at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from agents.run.tables import CALL_RESULTS, CALLS, HEADS, RETRIES, WAIT_GROUPS, WAITS
from agents.tables import Table
from schemas.stored import RunHead
from schemas.stored_calls import StoredCall
from schemas.stored_launch import StoredRetry
from schemas.topics import STATE_CHANGELOG
from streams.lane_tables import TIMERS_DUE
from tests.simulation.families.registry import Committed
from tests.simulation.families.run_drafts import SHORTEST_RETRY_MS
from tests.simulation.partition_log import LogRecord

R = TypeVar("R")


def changes(committed: Committed) -> Iterator[str]:
    """From one record of a key to the next, until it is deleted: numbers only grow, what is final stays."""
    for partition in committed[STATE_CHANGELOG.name]:
        yield from _pairs(partition, HEADS, _head)
        yield from _pairs(partition, CALLS, _call)
        yield from _pairs(partition, CALL_RESULTS, _call_result)
        yield from _pairs(partition, RETRIES, _retry)


def waits(committed: Committed) -> Iterator[str]:
    """At the end, whoever waits has a timer, is counted, and waits on a run that goes on."""
    for partition in committed[STATE_CHANGELOG.name]:
        heads = {key[0]: head for key, head in left(partition, HEADS)}
        timers = {(key, name) for (family, key, name), _ in left(partition, TIMERS_DUE) if family == "run"}
        on_runs: Counter[str] = Counter()
        on_subjects: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for (run, subject, _, number), wait in left(partition, WAITS):
            on_runs[run] += 1
            on_subjects[run, subject][0] += 1
            on_subjects[run, subject][1] += wait.owner is not None
            if (run, f"wait:{number}") not in timers:
                yield f"wait {number} on {run} {subject} never ends"
            if wait.call and (run, f"lease:{wait.call}") not in timers:
                yield f"wait {number} on {run} {subject} never gets the lease"
        counted = {key: [group.waits, group.claimers] for key, group in left(partition, WAIT_GROUPS)}
        if counted != on_subjects:
            yield f"there wait {dict(on_subjects)}, counted are {counted}"
        for run, head in heads.items():
            if head.waits != on_runs[run]:
                yield f"{on_runs[run]} wait on {run}, counted are {head.waits}"
            if head.waits and head.ended_at is not None:
                yield f"{head.waits} wait on {run}, which has ended"
        if on_runs.keys() - heads.keys():
            yield f"runs have waits and no head: {on_runs.keys() - heads.keys()}"


def _head(before: RunHead, after: RunHead) -> bool:
    if before.evicted and after.ended_at is None:
        # A batch is written once: in between the run was forgotten, and begun anew.
        return not after.evicted
    if before.ended_at is not None:
        same_end = (after.ended_at, after.status, after.latest_seq)
        return (
            same_end == (before.ended_at, before.status, before.latest_seq)
            and after.evicted >= before.evicted
        )
    return (
        after.latest_seq >= before.latest_seq
        and (after.attempt >= before.attempt or after.evicted)
        and (after.calls >= before.calls or after.evicted)
        and (after.traces >= before.traces or after.evicted)
    )


def _call(before: StoredCall, after: StoredCall) -> bool:
    if before.ok is not None:
        return after == before
    same_lease = after.fencing_number == before.fencing_number
    lasts_again = same_lease and not before.lease_expires_at and after.lease_expires_at != 0
    return (
        after.number == before.number
        and after.fencing_number >= before.fencing_number
        and not lasts_again
        and (not same_lease or after.claimed_by in (before.claimed_by, None))
    )


def _call_result(before: bytes, after: bytes) -> bool:
    return after == before


def _retry(before: StoredRetry, after: StoredRetry) -> bool:
    # A batch is written once: in between the state may have been put again with a shorter life, and have run out.
    return after.attempts >= before.attempts or after.updated_at >= before.updated_at + SHORTEST_RETRY_MS


def _pairs(
    partition: Sequence[LogRecord], table: Table[R], is_right: Callable[[R, R], bool]
) -> Iterator[str]:
    latest: dict[bytes, R] = {}
    for record in partition:
        key = record.key or b""
        if not key.startswith(table.prefix):
            continue
        before = latest.pop(key, None)
        if record.value is None:
            continue
        after = latest[key] = table.decode(record.value)
        if before is not None and not is_right(before, after):
            yield f"{table.name} {table.parts(key)} went from {before} to {after} at {record.offset}"


def left(partition: Sequence[LogRecord], table: Table[R]) -> list[tuple[tuple[Any, ...], R]]:
    """What a table holds in the end."""
    values: dict[bytes, bytes | None] = {}
    for record in partition:
        if record.key is not None and record.key.startswith(table.prefix):
            values[record.key] = record.value
    return [(table.parts(key), table.decode(value)) for key, value in values.items() if value is not None]
