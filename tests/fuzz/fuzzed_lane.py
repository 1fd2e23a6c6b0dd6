"""The lane's batches over a store in memory: records in, what became of each out."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import agents
from agents.families import FAMILIES
from agents.tables import Table
from schemas.stored import LaneProgress
from streams import lane_tables
from streams.batch import Batch, BatchCounts
from streams.lane_rules import LaneRules
from streams.ports import CommandRecord, OutRecord, StoreStamp
from streams.receiving import receive
from streams.timers import NEVER
from tests.fuzz.mutations import Draft
from tests.fuzz.odd_values import PARTITION, PARTITIONS
from tests.simulation.memory_store import MemoryStores

START = 1_700_000_000_000
MAX_COMMAND_BYTES = 1024 * 1024
REPEAT_MS = 24 * 60 * 60 * 1000


class Fed(NamedTuple):
    """What became of one record."""

    record: CommandRecord
    outcome: str
    """`applied`, `refused`, `repeated`, `forwarded`, `skipped`, or the code of its dead letter."""
    outputs: list[OutRecord]
    """Its own outputs."""
    timer_outputs: list[OutRecord]
    """What the timers made that were due before it."""

    @property
    def is_dead(self) -> bool:
        """It went to the dead letters."""
        return self.outcome.isupper()


@dataclass
class FuzzedLane:
    """One lane. Every way out of a batch that the contract does not allow fails at once."""

    partition: int = PARTITION
    repeat_limit: int = 1000
    disk: MemoryStores = field(default_factory=MemoryStores)
    now: int = START
    batches: int = 0

    def __post_init__(self) -> None:
        self._rules = LaneRules(
            families={family.commands.topic: family for family in FAMILIES},
            partitions=PARTITIONS,
            max_command_bytes=MAX_COMMAND_BYTES,
            repeat_limit=self.repeat_limit,
            repeat_ms=REPEAT_MS,
            full_name=lambda topic: f"fuzz-{topic}",
        )
        self._store = self.disk.open(self.partition)
        self._progress = LaneProgress()
        self._next_due = NEVER
        self._next_offset = 0
        self._begin()

    def feed(self, draft: Draft) -> Fed:
        """Process a record as the next one of its topic."""
        return self.feed_record(self.record(draft))

    def feed_record(self, record: CommandRecord) -> Fed:
        """Process a record that lies on its topic."""
        timer_outputs = self.fire_due()
        fed = self._apply(record)._replace(timer_outputs=timer_outputs)
        if self._batch.is_full:
            self.commit()
        return fed

    def feed_again(self, record: CommandRecord) -> Fed:
        """Process a record that has come before."""
        return self._apply(record)

    def record(self, draft: Draft) -> CommandRecord:
        """The record that the draft becomes on its topic."""
        topic, key, value, headers = draft
        self._next_offset += 1
        return CommandRecord(topic, self.partition, self._next_offset - 1, self.now, key, value, headers)

    def fire_due(self) -> list[OutRecord]:
        """Fire all timers that are due; returns what they made."""
        made: list[OutRecord] = []
        while self._batch.timers.next_due <= self.now:
            before = len(self._batch.outputs)
            self._batch.fire_due(self.now)
            assert self._batch.counts.internal_errors == 0, self._batch.outputs[before:]
            made += self._batch.outputs[before:]
            if self._batch.is_full:
                self.commit()
        return made

    def commit(self) -> None:
        """End the batch and begin the next."""
        if not self._batch.is_empty:
            changes = self._batch.changes()
            self._store.write(changes, StoreStamp("fuzz", 0, 0))
            self._progress = self._batch.progress()
        self._next_due = self._batch.timers.next_due
        self._begin()

    def state(self) -> dict[str, dict[tuple[Any, ...], bytes]]:
        """All that is committed, by table and key, after every key and record was read and written back."""
        found: dict[str, dict[tuple[Any, ...], bytes]] = {}
        for key, value in self.disk.lanes[self.partition].data.items():
            table = next(table for table in TABLES if key.startswith(table.prefix))
            parts = table.parts(key)
            assert table.key(*parts) == key
            assert table.encode(table.decode(value)) == value
            found.setdefault(table.name, {})[parts] = value
        return found

    def _apply(self, record: CommandRecord) -> Fed:
        outputs, counts = len(self._batch.outputs), _numbers(self._batch.counts)
        self._batch.apply(receive(self._rules, record))
        return Fed(record, _outcome(counts, self._batch.counts), self._batch.outputs[outputs:], [])

    def _begin(self) -> None:
        self.batches += 1
        self._batch = Batch(self._rules, self.partition, self._store, self._progress, self._next_due)


def tables() -> list[Table[Any]]:
    """All tables of the lane and of every family."""
    modules = [lane_tables] + [
        importlib.import_module(f"{package.name}.tables")
        for package in pkgutil.iter_modules(agents.__path__, "agents.")
        if package.ispkg and importlib.util.find_spec(f"{package.name}.tables")
    ]
    return [value for module in modules for value in vars(module).values() if isinstance(value, Table)]


TABLES = tables()


def _numbers(counts: BatchCounts) -> dict[str, int]:
    """Outcome -> how many records had it."""
    outcomes = {name: value for name, value in vars(counts).items() if isinstance(value, int)}
    return {**outcomes, **counts.dead_letters}


def _outcome(before: dict[str, int], counts: BatchCounts) -> str:
    after = _numbers(counts)
    changed = {
        name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)
    }
    assert list(changed.values()) == [1], f"a record has exactly one outcome, not {changed}"
    return next(iter(changed))
