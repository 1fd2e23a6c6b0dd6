"""A lane: everything that partition number p owns, and the transaction that makes a batch take effect (DESIGN 3).

The steps are numbered as in the contract. A lane that is interrupted between any two of them is opened again,
here or elsewhere, and goes on exactly once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol, TypeVar

from schemas.stored import LaneProgress
from streams.batch import Batch, BatchCounts
from streams.lane_log import LaneLog
from streams.lane_rules import LaneRules
from streams.lane_tables import PROGRESS, TIMERS
from streams.poison_search import PoisonSearch, UnwritableError
from streams.ports import (
    CommandRecord,
    LaneLostError,
    RecordsRefusedError,
    StateChange,
    StateStore,
    StoreBrokenError,
    StoreFactory,
    StoreStamp,
)
from streams.receiving import receive, receive_all
from streams.timers import NEVER

_log = logging.getLogger(__name__)

_FAULT_WINDOW = 1000
_BRIEF_COMMANDS = 32


class Step(Enum):
    """The points at which a lane may be interrupted, in order (DESIGN 3: before step 2, before and in the middle
    of step 4, after the steps 4 and 5)."""

    TAKEN = 1
    DECIDED = 3
    PRODUCED = 4
    COMMITTED = 5
    STORED = 6


T = TypeVar("T")


class Compute(Protocol):
    """Runs a piece of work, perhaps in another thread, and returns its result. A brief one is about few commands."""

    def __call__(self, work: Callable[[], T], /, *, is_brief: bool) -> T: ...


def _here(work: Callable[[], T], /, *, is_brief: bool) -> T:
    return work()


class LaneHaltedError(Exception):
    """Too many commands of this lane hit internal errors; it stops instead of draining the topic."""


@dataclass(frozen=True)
class FaultLimits:
    """When a lane halts: more than `share` of its last 1,000 commands, and at least `minimum`, hit bugs."""

    share: float
    minimum: int


@dataclass(frozen=True)
class RestoreProgress:
    """How far a restore is, in changelog offsets, and how many records it has read."""

    start: int
    position: int
    end: int
    records: int


class Lane:
    """State and commit of one partition number. Thread-safe: `open`, `process` and `close` never overlap."""

    def __init__(
        self,
        partition: int,
        log: LaneLog,
        stores: StoreFactory,
        rules: LaneRules,
        *,
        faults: FaultLimits,
        tombstones_kept_ms: int,
        compute: Compute = _here,
        on_restore: Callable[[RestoreProgress], None] = lambda progress: None,
        at_step: Callable[[Step], None] = lambda step: None,
        wall_clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """`tombstones_kept_ms` is the changelog's `delete.retention.ms`; `at_step` is called between steps.

        `compute` runs what needs the processor; see `streams.lane_factory.Turns`.
        """
        self.partition = partition
        self._log = log
        self._stores = stores
        self._rules = rules
        self._faults = faults
        self._tombstones_kept_ms = tombstones_kept_ms
        self._on_restore = on_restore
        self._at_step = at_step
        self.wall_clock = wall_clock
        """The worker's clock, in milliseconds since the epoch."""
        self._lock = threading.Lock()
        self._compute = compute
        self._store: StateStore | None = None
        self._changelog_id = ""
        self._progress = LaneProgress()
        self._recent_faults: deque[int] = deque(maxlen=_FAULT_WINDOW)
        self._is_distrusted = False
        self._search = PoisonSearch(self._transact)
        self.next_due = NEVER
        """No timer of the lane is due before this time."""

    @property
    def watermarks(self) -> dict[str, int]:
        """Command topic -> offset of the last command whose effects are committed."""
        return self._progress.watermarks

    @property
    def clock(self) -> int:
        """The latest time that the lane has seen, in milliseconds since the epoch."""
        return self._progress.clock

    @property
    def transactions(self) -> int:
        """How many transactions the lane has ever committed."""
        return self._progress.transactions

    def watermark(self, topic: str) -> int:
        """Offset of the topic's last command whose effects are committed; -1 when there is none."""
        return self._progress.watermarks.get(topic, -1)

    def open(self) -> None:
        """Take the partition over and bring the local state up to the changelog's end.

        Raises `LaneLostError` when that fails; it may be tried again.
        """
        with self._lock, self._distrusting():
            self._release()
            if self._is_distrusted:
                _log.warning("lane %d: the local store cannot be trusted; thrown away", self.partition)
                self._stores.destroy(self.partition)
                self._is_distrusted = False
            started = time.monotonic()
            self._log.fence()
            self._log.heal()
            fenced = time.monotonic()
            self._changelog_id = self._log.cluster.changelog_id()
            opened_at = self.wall_clock()
            end = self._log.cluster.changelog_end()
            store, stamp = self._open_store(end, opened_at)
            records = self._restore(store, stamp, end, opened_at)
            self._load(store)
            _log.info(
                "lane %d opened: taken over in %.2f s, %d records restored in %.2f s",
                self.partition,
                fenced - started,
                records,
                time.monotonic() - fenced,
            )

    def process(self, commands: Sequence[CommandRecord], timers_until: int | None = None) -> BatchCounts:
        """Apply commands in order, then fire timers due by `timers_until`; returns once all of it is committed.

        Usually in one transaction; in several when the outputs are large.
        Raises `LaneLostError` when the outcome is open: then the lane has to be opened again.
        Raises `LaneHaltedError` before anything takes effect when too many commands hit internal errors.
        """
        with self._lock, self._distrusting():
            if self._search.is_on:
                return self._process_one_by_one(commands, timers_until)
            return self._process(commands, timers_until)

    def command_range(self, topic: str) -> tuple[int, int]:
        """First and end offset of the lane's partition of a command topic, as the log is now."""
        return self._log.cluster.command_range(topic)

    def skip_expired(self, topic: str, first_kept: int) -> None:
        """Go on at offset `first_kept`: retention deleted what lies between the watermark and it."""
        with self._lock, self._distrusting():
            first = self.watermark(topic) + 1
            self._transact(lambda batch: batch.skip_expired(topic, first, first_kept, self.wall_clock()))

    def close(self) -> None:
        """Release store and producers; what is not committed is dropped."""
        with self._lock:
            self._release()

    @contextmanager
    def _distrusting(self) -> Iterator[None]:
        """Remember that the local store is broken, so that the next opening does without it."""
        try:
            yield
        except StoreBrokenError:
            self._is_distrusted = True
            raise

    def _process(self, commands: Sequence[CommandRecord], timers_until: int | None) -> BatchCounts:
        left = receive_all(self._rules, commands)
        is_done = False

        def fill(batch: Batch) -> None:
            nonlocal is_done
            apply = batch.apply
            for command in left:
                apply(command)
                if batch.is_full:
                    return
            is_done = True
            if timers_until is not None:
                batch.fire_due(timers_until)

        counts = BatchCounts()
        try:
            while not is_done:
                counts.add(self._transact(fill, is_brief=len(commands) <= _BRIEF_COMMANDS))
            return counts
        except RecordsRefusedError:
            # Something in it is poison: after the reopening each is committed alone, to find it.
            self._search.begin(len(commands))
            raise

    def _process_one_by_one(self, commands: Sequence[CommandRecord], timers_until: int | None) -> BatchCounts:
        counts = BatchCounts()

        def fire_due(until: int) -> None:
            while self.next_due <= max(until, self.clock):
                counts.add(self._search.fire_one(until))

        for command in commands:
            fire_due(command.timestamp)
            counts.add(self._search.apply(receive(self._rules, command)))
        if timers_until is not None:
            fire_due(timers_until)
        if not commands:
            self._search.end_of_timers()
        return counts

    def _transact(self, fill: Callable[[Batch], None], *, is_brief: bool = True) -> BatchCounts:
        """One batch, from step 1 to step 5: `fill` decides, one transaction, and only then the local store."""
        store = self._store
        if store is None:
            raise LaneLostError("the lane is not open")

        def begin() -> tuple[Batch, list[StateChange]]:
            batch = Batch(self._rules, self.partition, store, self._progress, self.next_due)
            self._at_step(Step.TAKEN)
            fill(batch)
            self._check_faults(batch.counts)
            self._at_step(Step.DECIDED)
            if batch.is_empty:
                return batch, []
            changes = self._changes(batch)
            self._log.produce(changes, batch.outputs)
            self._at_step(Step.PRODUCED)
            return batch, changes

        batch, changes = self._compute(begin, is_brief=is_brief)
        if changes:
            position = self._log.commit()
            self._at_step(Step.COMMITTED)
            stamp = StoreStamp(self._changelog_id, position, self.wall_clock())
            self._compute(lambda: store.write(changes, stamp), is_brief=is_brief)
            self._progress = batch.progress()
        self.next_due = batch.timers.next_due
        if changes:
            self._at_step(Step.STORED)
        return batch.counts

    def _changes(self, batch: Batch) -> list[StateChange]:
        try:
            return batch.changes()
        except Exception as error:
            _log.exception("lane %d: what a batch has changed cannot be written", self.partition)
            raise UnwritableError(
                f"{type(error).__name__} while writing; nothing of it took effect"
            ) from error

    def _check_faults(self, counts: BatchCounts) -> None:
        recent = self._recent_faults
        recent.extend([0] * (counts.applied + counts.refused + counts.repeated))
        recent.extend([1] * counts.internal_errors)
        faults = sum(recent)
        if faults >= self._faults.minimum and faults > self._faults.share * len(recent):
            recent.clear()
            raise LaneHaltedError(
                f"{faults} of the last commands of partition {self.partition} hit internal errors; "
                "see their tracebacks in the dead letters, then restart the worker"
            )

    def _open_store(self, end: int, now: int) -> tuple[StateStore, StoreStamp]:
        """The local store, and what it stands for; one that cannot be trusted is made anew."""
        store = self._store = self._stores.open(self.partition)
        stamp = store.stamp()
        new = StoreStamp(self._changelog_id, 0, now)
        if stamp is None:
            return store, new
        age = now - stamp.written_at
        if stamp.changelog_id != self._changelog_id:
            reason = "the topics were made anew"
        elif stamp.position > end:
            reason = f"its position {stamp.position} is past the changelog's end {end}"
        elif age > self._tombstones_kept_ms // 2:
            reason = (
                f"it was last written {age // 1000} s ago, and compaction may have dropped deletions since"
            )
        elif not self._log.cluster.is_committed(stamp.position - 1):
            # Acknowledged, but all its markers were lost: the next owner ended it as aborted.
            reason = "its last change is not in the changelog: it was aborted, or compaction has dropped it"
        else:
            return store, stamp
        _log.info("lane %d: the local store is not used: %s", self.partition, reason)
        store.close()
        self._stores.destroy(self.partition)
        self._store = self._stores.open(self.partition)
        return self._store, new

    def _restore(self, store: StateStore, stamp: StoreStamp, end: int, opened_at: int) -> int:
        """Bring the store from what it stands for to `end`, which was the changelog's end after `opened_at`."""
        records, start = 0, stamp.position
        for changes, position in self._log.cluster.read_changelog(start, end):
            # Of the old time: compaction may drop deletions from what is still to be read.
            stamp = replace(stamp, position=position)
            store.write(changes, stamp)
            records += len(changes)
            self._on_restore(RestoreProgress(start, position, end, records))
        self._on_restore(RestoreProgress(start, end, end, records))
        took = self.wall_clock() - stamp.written_at
        if took > self._tombstones_kept_ms * 3 // 4:
            self._is_distrusted = True
            raise LaneLostError(
                f"restored, but {took // 1000} s after all deletions were known to be there: compaction may have "
                "dropped some since"
            )
        if stamp.position:
            store.write([], replace(stamp, written_at=opened_at))
        return records

    def _load(self, store: StateStore) -> None:
        data = store.get(PROGRESS.key())
        self._progress = PROGRESS.decode(data) if data else LaneProgress()
        first = next(store.scan(TIMERS.prefix), None)
        self.next_due = TIMERS.parts(first[0])[0] if first else NEVER

    def _release(self) -> None:
        self._log.close()
        if self._store is not None:
            self._store.close()
            self._store = None
