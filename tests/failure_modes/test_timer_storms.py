"""Timers that are due are sent again while the first are in flight: a storm that feeds itself.

Elsewhere: everything that is due is fetched in each round, until the log and the memory are full of it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from agents.families import Family
from agents.machine import Decision, FiredTimer, Request, View
from schemas.run_commands import RUN_COMMANDS
from streams.batch import MAX_TIMERS_AT_ONCE
from streams.lane import FaultLimits, Lane, Step
from streams.lane_log import LaneLog
from streams.lane_rules import LaneRules
from streams.ports import CommandRecord
from streams.rocks_store import RocksStores
from tests.contract.bare_client import command
from tests.simulation.memory_cluster import MemoryLaneCluster, PerfectNetwork
from tests.simulation.memory_kafka import MemoryKafka

START = 1_700_000_000_000
DUE = START + 60_000
TIMERS_OF_A_KEY = 1000
SETS_TIMERS, DOES_NOTHING = "run.submit", "run.cancel"


class Alarms:
    """A machine of which one command sets many timers for the same moment; each timer writes one event."""

    def decide(self, request: Request[Any], view: View) -> Decision:
        """Set the timers, or do nothing."""
        decision = Decision()
        if request.command.type == SETS_TIMERS:
            for number in range(TIMERS_OF_A_KEY):
                decision.schedule(str(number), DUE)
        return decision.succeed({})

    def fire(self, timer: FiredTimer, view: View) -> Decision:
        """Write the event."""
        decision = Decision()
        decision.emit("run-events", timer.key, timer.name.encode())
        return decision

    def recall(self, what: str, key: str, view: View) -> Any:
        """Nothing is held by reference."""


class Storm:
    """A lane of which many timers are due at once."""

    def __init__(self, folder: Path, keys: int) -> None:
        """Each key has 1,000 timers; none is due yet."""
        self.timers = keys * TIMERS_OF_A_KEY
        self.now = START
        self.largest = self._position = 0
        self.kafka = MemoryKafka(1, now=lambda: self.now)
        family = Family("run", RUN_COMMANDS, Alarms())
        self.lane = Lane(
            0,
            LaneLog(0, MemoryLaneCluster(self.kafka, 0, PerfectNetwork())),
            RocksStores(folder, block_cache_mb=32, write_buffer_mb=32, lanes=1),
            LaneRules(
                families={RUN_COMMANDS.topic: family},
                partitions=1,
                max_command_bytes=1 << 20,
                repeat_limit=1000,
                repeat_ms=1 << 40,
                full_name=str,
            ),
            faults=FaultLimits(0.5, 100),
            tombstones_kept_ms=1 << 40,
            wall_clock=lambda: self.now,
            at_step=self._step,
        )
        self.lane.open()
        self.lane.process([self.command(SETS_TIMERS, number, START) for number in range(keys)])
        self.changes_before = self.end("state-changelog")
        self.transactions_before = self.lane.transactions
        self.largest = 0

    def command(self, type_: str, offset: int, timestamp: int) -> CommandRecord:
        """The command at an offset, of a key of its own."""
        key = f"key {offset}"
        value = command(type_, key, "c", name="n")
        return CommandRecord(RUN_COMMANDS.topic, 0, offset, timestamp, key.encode(), value, ())

    def end(self, topic: str) -> int:
        """End offset of a topic."""
        return self.kafka.log((topic, 0)).end

    def check(self, commands: int) -> None:
        """Each timer fired once, at a price that grows with their number alone."""
        events = self.kafka.log(("run-events", 0)).committed()
        fired = Counter((record.key, record.value) for record in events)
        assert len(fired) == self.timers
        assert set(fired.values()) == {1}
        transactions = self.lane.transactions - self.transactions_before
        assert transactions <= self.timers // MAX_TIMERS_AT_ONCE + commands
        # The two records of each timer go; a command is remembered; a transaction has its progress and its marker.
        written = self.end("state-changelog") - self.changes_before
        assert written <= 2 * self.timers + 4 * commands + 2 * transactions
        assert self.largest <= 2 * MAX_TIMERS_AT_ONCE + 4 + 2

    def _step(self, step: Step) -> None:
        """A slow lane: a minute passes in each transaction."""
        if step is Step.TAKEN:
            self._position = self.end("state-changelog")
        elif step is Step.STORED:
            self.now += 60_000
            self.largest = max(self.largest, self.end("state-changelog") - self._position)


def test_each_of_100000_timers_fires_once_however_slow_the_lane(tmp_path: Path) -> None:
    storm = Storm(tmp_path, keys=100)
    assert storm.lane.process((), DUE - 1).timers == 0
    while fired := storm.lane.process((), max(DUE, storm.now)).timers:
        assert fired <= MAX_TIMERS_AT_ONCE
    storm.check(commands=0)


def test_commands_go_on_in_a_storm_and_no_transaction_takes_it_whole(tmp_path: Path) -> None:
    storm = Storm(tmp_path, keys=8)
    commands = [storm.command(DOES_NOTHING, 8 + number, DUE) for number in range(6)]
    counts = storm.lane.process(commands)
    assert (counts.applied, counts.timers) == (6, 6 * MAX_TIMERS_AT_ONCE)
    storm.lane.open()
    while storm.lane.process((), DUE).timers:
        pass
    storm.check(commands=6)
