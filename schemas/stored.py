"""What a lane stores, record by record, in RocksDB and in the changelog.

Every record carries its schema version `v`; a reader accepts every version that was ever written.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Stored(BaseModel):
    """Base of the stored records: JSON, short names kept stable."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    v: int = 1


class RunHead(Stored):
    """What is known of a run besides its events and end. Table `run.head`, key (run id)."""

    status: str | None = None
    """`running`, `completed`, `failed`, `cancelled`; None when only waits hang on an unknown run."""
    latest_seq: int = 0
    waits: int = 0
    """Waits of all kinds that hang on the run."""
    next_wait: int = 1
    """Number of the next wait; never reused while the run is known."""
    submitted: bool = False
    name: str | None = None
    instance_id: str | None = None
    attempt: int = 0
    """The attempt that may write; 0 before the run is submitted."""
    submit_seq: int = 0
    ended_at: int | None = None
    evicts_at: int | None = None
    evicted: bool = False


class RunWait(Stored):
    """A question that waits. Table `run.wait`, key (run id, wait number)."""

    kind: str
    """`events.list` or `run.status`."""
    command_id: str
    partition: int
    """Reply partition."""
    correlation_id: str
    """The correlation id's bytes, in base64."""
    after_seq: int = 0
    limit: int = 0
    trace: bool = False


class Remembered(Stored):
    """The answer to a command, for when it comes again. Table `lane.answer`, key (family, key, command id)."""

    number: int
    """Position among the remembered commands of the key, from 1."""
    at: int
    """When it was answered, in milliseconds since the epoch."""
    ok: bool
    body: dict[str, Any]
    by_reference: dict[str, str] = {}
    """Fields of `body` that are looked up again (field -> what), since they may be large."""


class RepeatWindow(Stored):
    """How many commands of a key were remembered. Table `lane.window`, key (family, key)."""

    latest: int = 0


class Timer(Stored):
    """A timer. Table `lane.timer`, key (due, family, key, name); found by name through `lane.timer_due`."""

    payload: Any = None


class TimerDue(Stored):
    """When the timer of a name is due. Table `lane.timer_due`, key (family, key, name)."""

    due: int


class LaneProgress(Stored):
    """How far a lane is. Table `lane.progress`, key (): written in every transaction."""

    watermarks: dict[str, int] = {}
    """Command topic (without prefix) -> offset of the last command whose effects are in the state."""
    clock: int = 0
    """The latest time that the lane has seen, in milliseconds since the epoch."""
    transactions: int = 0
    """Number of the transaction that wrote this record, from 1."""
