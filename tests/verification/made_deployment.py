"""A deployment in memory that runs the real batches, and whose topics hold all that it commits."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agents.families import FAMILIES
from schemas.stored import LaneProgress
from schemas.topics import RATE_COMMANDS, RUN_COMMANDS
from streams.batch import Batch
from streams.lane_rules import LaneRules
from streams.partitioner import partition_for
from streams.ports import CommandRecord, StoreStamp
from streams.receiving import receive
from streams.timers import NEVER
from streams.verify.cut import RepeatLimits
from tests.simulation.memory_store import MemoryStore, MemoryStores
from tests.verification.made_topics import CHANGELOG, Made, Topics

PARTITIONS = 3
COMMANDS, RATES = RUN_COMMANDS.name, RATE_COMMANDS.name
ID_FIELDS = {COMMANDS: "runId", RATES: "bucketId"}
START = 1_700_000_000_000
SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000
Headers = tuple[tuple[str, bytes | None], ...]


@dataclass
class _Lane:
    partition: int
    store: MemoryStore
    progress: LaneProgress = field(default_factory=LaneProgress)
    next_due: int = NEVER


class Deployment:
    """Clients send, lanes work, time passes; `topics` is what a verification reads."""

    def __init__(self, *, repeat_limit: int = 1000, repeat_ms: int = DAY) -> None:
        self.topics = Topics(PARTITIONS)
        self.now = START
        self.steps = 0
        """Transactions so far, of all lanes and clients."""
        self.repeats = RepeatLimits(repeat_limit, repeat_ms)
        self._rules = LaneRules(
            families={family.commands.topic: family for family in FAMILIES},
            partitions=PARTITIONS,
            max_command_bytes=64 * 1024,
            repeat_limit=repeat_limit,
            repeat_ms=repeat_ms,
            full_name=self.topics.name,
        )
        stores = MemoryStores()
        self._lanes = [_Lane(partition, stores.open(partition)) for partition in range(PARTITIONS)]
        self._next: dict[tuple[str, int], int] = {}
        self._sent = 0

    def send(
        self,
        type_: str,
        key: str,
        *,
        command_id: str | None = None,
        asks: bool = False,
        misplaced: bool = False,
        **fields: Any,
    ) -> str:
        """Send a command about a run, or a rate bucket; returns its id."""
        self._sent += 1
        command_id = command_id or f"c{self._sent}"
        topic = RATES if type_.startswith("rate.") else COMMANDS
        value = {"type": type_, "commandId": command_id, ID_FIELDS[topic]: key, **fields}
        partition = (partition_for(key.encode(), PARTITIONS) + misplaced) % PARTITIONS
        headers = self.address() if asks else ()
        self.send_raw(key.encode(), json.dumps(value).encode(), headers, partition, topic)
        return command_id

    def send_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        partition: int | None = None,
        topic: str = COMMANDS,
    ) -> None:
        """Send any record."""
        self.steps += 1
        if partition is None:
            partition = partition_for(key or b"", PARTITIONS)
        self._append(topic, partition, key, value, headers)

    def address(self) -> Headers:
        """A reply address of its own for each command."""
        self._sent += 1
        partition = b"%d" % (self._sent % PARTITIONS)
        return (("reply-partition", partition), ("correlation-id", b"ask-%d" % self._sent))

    def work(self, partition: int | None = None, most: int = 10**9) -> None:
        """Let lanes apply commands that wait, at most so many in one transaction each."""
        for lane in self._lanes if partition is None else [self._lanes[partition]]:

            def apply(batch: Batch, lane: _Lane = lane) -> None:
                for topic, record in self._waiting(lane)[:most]:
                    command = CommandRecord(
                        topic,
                        lane.partition,
                        record.at,
                        record.time,
                        record.own_key,
                        record.own_value,
                        record.own_headers,
                    )
                    batch.apply(receive(self._rules, command))

            self._transact(lane, apply)

    def _waiting(self, lane: _Lane) -> list[tuple[str, Made]]:
        watermarks = lane.progress.watermarks
        return [
            (topic, record)
            for topic in (COMMANDS, RATES)
            for record in self.topics.logs[topic, lane.partition]
            if record.at > watermarks.get(topic, -1)
        ]

    def settle(self) -> Topics:
        """Let all lanes do all there is, also what they forward to each other; returns the topics."""
        for _ in range(2):
            self.work()
        return self.topics

    def pass_time(self, ms: int) -> None:
        """Let time pass; timers fire about when they are due, in lanes without commands that wait."""
        end = self.now + ms
        # No question waits longer than half a minute.
        for moment in (min(end, self.now + 30 * SECOND), end):
            self.now = moment
            for lane in self._lanes:
                if not self._waiting(lane):
                    self._transact(lane, lambda batch: batch.fire_due(self.now))

    def skip_expired(self, partition: int, next_offset: int) -> None:
        """Retention has deleted commands that were never processed."""
        self.topics.delete_before((COMMANDS, partition), next_offset)
        lane = self._lanes[partition]
        first = lane.progress.watermarks.get(COMMANDS, -1) + 1
        self._transact(lane, lambda batch: batch.skip_expired(COMMANDS, first, next_offset, self.now))

    def _transact(self, lane: _Lane, fill: Callable[[Batch], None]) -> None:
        batch = Batch(self._rules, lane.partition, lane.store, lane.progress, lane.next_due)
        fill(batch)
        lane.next_due = batch.timers.next_due
        if batch.is_empty:
            return
        self.steps += 1
        changes = batch.changes()
        touched = {(CHANGELOG, lane.partition)}
        for key, value in changes:
            self._append(CHANGELOG, lane.partition, key, value)
        for output in batch.outputs:
            headers = tuple(output.headers or ())
            self._append(output.topic, output.partition, output.key, output.value, headers)
            touched.add((output.topic, output.partition))
        for at in touched:
            # A marker takes an offset.
            self._next[at] = self._next.get(at, 0) + 1
        lane.store.write(changes, StoreStamp("made", 0, 0))
        lane.progress = batch.progress()

    def _append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> None:
        at = (topic, partition)
        offset = self._next.get(at, 0)
        self._next[at] = offset + 1
        self.topics.logs[at].append(Made(offset, self.now, key, value, headers, self.steps))
