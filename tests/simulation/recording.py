"""Notes what each transaction of a lane did and in which order: the judge holds that against the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from schemas.errors import ErrorCode
from streams import lane as lane_module
from streams.batch import Batch
from streams.ports import CommandRecord
from streams.receiving import ReceivedCommand
from streams.timers import DueTimer


class Applied(NamedTuple):
    """A command was processed."""

    record: CommandRecord


class Refused(NamedTuple):
    """A command was dead-lettered since the broker refuses its outputs."""

    record: CommandRecord


class Fired(NamedTuple):
    """Timers were fired that were due by this time, at most so many."""

    until: int
    limit: int


class Buried(NamedTuple):
    """The first timer that was due by this time was dead-lettered, since the broker refuses its outputs."""

    until: int


class Expired(NamedTuple):
    """Commands were given up that retention had deleted."""

    topic: str
    first: int
    next: int
    now: int


Action = Applied | Refused | Fired | Buried | Expired


class RecordingBatch(Batch):
    """A batch that remembers what it was told to do."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.actions: list[Action] = []
        self.fired: list[DueTimer] = []
        # Kept with the store, so that both go together.
        args[2].batch = self

    def apply(self, received: ReceivedCommand) -> None:
        """See `Batch`."""
        record = received.record
        is_new = record.offset > self.watermarks.get(record.topic, -1)
        super().apply(received)
        if is_new:
            self.actions.append(Applied(record))

    def refuse(self, received: ReceivedCommand, code: ErrorCode, message: str) -> None:
        """See `Batch`."""
        record = received.record
        is_new = record.offset > self.watermarks.get(record.topic, -1)
        super().refuse(received, code, message)
        if is_new:
            self.actions.append(Refused(record))

    def skip_expired(self, topic: str, first: int, next_offset: int, now: int) -> None:
        """See `Batch`."""
        super().skip_expired(topic, first, next_offset, now)
        self.actions.append(Expired(topic, first, next_offset, now))

    def fire_due(self, now: int) -> None:
        """See `Batch`."""
        super().fire_due(now)
        self.actions.append(Fired(now, self.max_timers))

    def bury_due(self, now: int, code: ErrorCode, message: str) -> None:
        """See `Batch`."""
        super().bury_due(now, code, message)
        self.actions.append(Buried(now))

    def _timer(self, timer: DueTimer) -> None:
        self.fired.append(timer)
        super()._timer(timer)


class Recording:
    """What was done in each transaction, by its name, whether it was committed or not."""

    def __init__(self) -> None:
        self.batches: dict[str, RecordingBatch] = {}
        self.writers: dict[str, str] = {}
        """Name -> the process."""

    def produced(self, name: str, process: str, batch: RecordingBatch) -> None:
        """A transaction is about to be produced."""
        self.batches[name] = batch
        self.writers[name] = process


@contextmanager
def recorded_batches() -> Iterator[None]:
    """Lanes make recording batches."""
    before = lane_module.Batch
    lane_module.Batch = RecordingBatch  # type: ignore[misc]
    try:
        yield
    finally:
        lane_module.Batch = before  # type: ignore[misc]
