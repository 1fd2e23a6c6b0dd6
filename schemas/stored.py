"""What a lane stores, record by record, in RocksDB and in the changelog.

Every record is a JSON object that begins with its schema version `v`. Fields that hold their default are
left out, so a new field with a default needs no new version. When the meaning of a record changes, its class
gets the next number (`class RunHead(Stored, frozen=True, tag=2)`), the old class stays under another name,
and its table is declared with how to upgrade it: a reader accepts every version that was ever written.

msgspec and not pydantic, because these records are read and written with every command: reading, changing and
writing a run's head takes 0.7 us instead of 5.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

import msgspec
import msgspec.structs

replace = msgspec.structs.replace
"""`replace(record, field=value)`: a copy of a record with some fields changed."""

encode_record = msgspec.json.Encoder().encode
"""The bytes of a record."""


class Stored(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag=1):
    """Base of the stored records. They are immutable; the names of their fields are stable."""


S = TypeVar("S", bound=Stored)


def record_decoder(
    record: type[S], upgrades: Mapping[type[Stored], Callable[[Any], S]] | None = None
) -> Callable[[bytes], S]:
    """The function that reads the bytes of a record.

    `upgrades`: for each older version's class, the function that makes a present record of one.
    """
    if not upgrades:
        return msgspec.json.Decoder(record).decode
    decode_any = msgspec.json.Decoder(Union[(record, *upgrades)]).decode

    def decode(data: bytes) -> S:
        stored = decode_any(data)
        upgrade = upgrades.get(type(stored))
        return upgrade(stored) if upgrade is not None else stored

    return decode


class RunHead(Stored, frozen=True):
    """What is known of a run besides its events and end. Table `run.head`, key (run id)."""

    status: str | None = None
    """`running`, `completed`, `failed`, `cancelled`; None when only waits hang on an unknown run."""
    latest_seq: int = 0
    attempt: int = 0
    """The attempt that may write, from 1; 0 when the run was never submitted."""
    instance_id: str | None = None
    """The executor instance that may write; None when the run was never submitted."""
    submit_seq: int = 0
    """`seq` of the event that the submit made."""
    waits: int = 0
    """Waits of all kinds that hang on the run."""
    next_wait: int = 1
    """Number of the next wait; never reused while the run is known."""
    ended_at: int | None = None
    """When the run ended, in milliseconds since the epoch."""
    evicts_at: int | None = None
    """When the run is evicted because it was finished; None before `run.finish`."""
    evicted: bool = False
    """Only `status`, `latest_seq` and `ended_at` are left, and what is still to be deleted."""
    calls: int = 0
    """How many calls the run has; number of the newest."""
    traces: int = 0
    """How many traces the run has had; number of the newest."""


class RunWait(Stored, frozen=True):
    """A question that waits. Table `run.wait`, key (run id, subject, order, wait number)."""

    kind: str
    """The type of the command, such as `events.list`."""
    command_id: str
    partition: int
    """Reply partition."""
    correlation_id: bytes
    """In base64 where it is stored."""
    trace: bool = False
    """`run.status`: the answer has the traces."""
    owner: str | None = None
    """`call.await`: who would take the lease."""
    lease_ms: int = 0
    """`call.await`: how long that lease would last."""
    call: int = 0
    """`call.await`: number of the call whose lease would be taken."""
    sleeps: bool = False
    """`child.terminal.await`: the run's own function waits, so the run is sleeping."""


class WaitGroup(Stored, frozen=True):
    """The waits on one subject. Table `run.wait_group`, key (run id, subject)."""

    waits: int = 0
    claimers: int = 0
    """Those that would take a call's lease."""


class Remembered(Stored, frozen=True):
    """The answer to a command, in case it comes again. Table `lane.answer`, key (family, key, command id)."""

    number: int
    """Position among the remembered commands of the key, from 1."""
    at: int
    """When it was answered, in milliseconds since the epoch."""
    ok: bool
    body: dict[str, Any]
    by_reference: dict[str, str] = {}
    """Fields of `body` that are looked up again (field -> what), since they may be large."""


class RepeatWindow(Stored, frozen=True):
    """How many commands of a key were remembered. Table `lane.window`, key (family, key)."""

    latest: int = 0


class Timer(Stored, frozen=True):
    """A timer. Table `lane.timer`, key (due, family, key, name); found by name through `lane.timer_due`."""

    payload: Any = None


class TimerDue(Stored, frozen=True):
    """When the timer of a name is due. Table `lane.timer_due`, key (family, key, name)."""

    due: int


class LaneProgress(Stored, frozen=True):
    """How far a lane is. Table `lane.progress`, key (): written in every transaction."""

    watermarks: dict[str, int] = {}
    """Command topic (without prefix) -> offset of the last command whose effects are in the state."""
    clock: int = 0
    """The latest time that the lane has seen, in milliseconds since the epoch."""
    transactions: int = 0
    """Number of the transaction that wrote this record, from 1."""
