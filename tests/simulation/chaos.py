"""What befalls nodes, the broker, clocks and topics while clients send."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.topics import STATE_CHANGELOG
from streams.lane import Step
from tests.simulation.faults import FREEZES_S
from tests.simulation.memory_kafka import At, Transaction
from tests.simulation.process import TOMBSTONES_KEPT_MS, Node, Process

if TYPE_CHECKING:
    from tests.simulation.world import World

_CLOCK_OFFSETS_MS = (-20_000, -700, 0, 700, 20_000)
TRANSACTION_TIMEOUT_S = 60.0
_SEGMENT_MS = 5000
_LEAPS_MS = (70_000, 130_000, 3_600_000, 90_000_000)
_STEPS = tuple(f"step {step.name}" for step in Step)


@dataclass
class Ambush:
    """Something that waits for a process to get to a certain call."""

    call: str
    passes: int
    """How many calls it lets pass before."""
    strike: Callable[[Process], None]


class Chaos:
    """The trouble of one schedule."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self.done: Counter[str] = Counter()
        """What has happened, and how often."""
        self._ambushes: list[Ambush] = []
        self._absences: list[asyncio.Task[None]] = []
        self._crash_after_commit: bool | None = None
        """After what the broker is about to crash: a commit, or an abort."""
        self._is_crash_near = False
        self._events: dict[str, Callable[[], None]] = {
            "rebalance": self._rebalance,
            "kill": self._kill,
            "ambush": self._ambush,
            "power loss": self._power_loss,
            "stop": self._stop,
            "lose disk": self._lose_disk,
            "old disk": self._old_disk,
            "break disk": self._break_disk,
            "freeze": self._freeze,
            "deaf": self._deaf,
            "broker crash": self._broker_crash,
            "broker away": self._broker_away,
            "clock": self._clock,
            "leap": self._leap,
            "retention": self._retention,
            "compaction": self._compaction,
            "client transaction": self._client_transaction,
            "absence": self._absence,
            "topics anew": self._topics_anew,
        }

    async def end(self) -> None:
        """Nothing new happens any more; return when all nodes have come back."""
        self._ambushes.clear()
        self._crash_after_commit = None
        if self._absences:
            await asyncio.wait(self._absences)

    async def run(self) -> None:
        """Let things happen until it is cancelled."""
        plan, random = self._world.plan, self._random
        while True:
            await asyncio.sleep(random.expovariate(1 / plan.event_gap_s))
            event = random.choice(plan.events)
            self.done[event] += 1
            self._events[event]()
            self._world.kafka.expire(TRANSACTION_TIMEOUT_S)

    def reached(self, process: Process, call: str) -> None:
        """A process has got to one of its calls."""
        for ambush in self._ambushes:
            if ambush.call == call:
                ambush.passes -= 1
                if ambush.passes < 0:
                    self._ambushes.remove(ambush)
                    self._world.note(process.name, f"is caught at {call}")
                    ambush.strike(process)
                return

    def _process(self) -> Process | None:
        """A live worker."""
        live = [node.process for node in self._world.nodes if node.process and not node.process.is_dead]
        return self._random.choice(live) if live else None

    def _rebalance(self) -> None:
        self._world.note("group", "rebalances")
        self._world.group.rebalance()

    def _kill(self) -> None:
        if process := self._process():
            process.kill()

    def _ambush(self) -> None:
        """A lane is killed between two steps, soon."""
        self._lie_in_wait(*_STEPS)

    def _lie_in_wait(self, *calls: str) -> None:
        call, passes = self._random.choice(calls), self._random.randint(0, 3)
        self._ambushes.append(Ambush(call, passes, self._take_down))

    def _take_down(self, process: Process) -> None:
        if self._random.random() < 0.5:
            process.kill()
        else:
            self._lose_power(process)

    def _power_loss(self) -> None:
        if process := self._process():
            self._lose_power(process)

    def _lose_power(self, process: Process) -> None:
        process.kill("loses power")
        for partition, disk in sorted(process.node.disk.items()):
            lost = disk.lose_writes(self._random.randint(0, 4))
            self._world.note(process.name, f"lost the last {lost} writes of lane {partition}")

    def _stop(self) -> None:
        if process := self._process():
            self._world.spawn(process.stop())

    def _lose_disk(self) -> None:
        if process := self._process():
            process.kill("loses its disk")
            process.node.disk.clear()

    def _old_disk(self) -> None:
        if process := self._process():
            node = process.node
            if not node.backup:
                self._world.note(node.name, "makes a backup of its disk")
                node.backup = {partition: disk.copy() for partition, disk in node.disk.items()}
                return
            process.kill("gets its disk from the backup")
            node.disk.clear()
            node.disk.update({partition: disk.copy() for partition, disk in node.backup.items()})

    def _break_disk(self) -> None:
        if (process := self._process()) and (disks := sorted(process.node.disk.items())):
            partition, disk = self._random.choice(disks)
            self._world.note(process.name, f"the store of lane {partition} breaks")
            disk.is_broken = True

    def _freeze(self) -> None:
        if process := self._process():
            process.freeze(self._random.choice(FREEZES_S))
            self._world.group.rebalance()

    def _deaf(self) -> None:
        if process := self._process():
            process.deafen(self._random.choice(FREEZES_S))
            self._world.group.rebalance()

    def _broker_crash(self) -> None:
        """Soon after the next commit, or the next abort, the broker dies, before it has written all markers."""
        self._crash_after_commit = self._random.random() < 0.7
        if not self._crash_after_commit:
            self._lie_in_wait("step PRODUCED")

    def delays_marker(self, commits: bool) -> bool:
        """A marker is to be written; whether it has to wait, since the broker dies before."""
        if self._crash_after_commit is commits:
            self._crash_after_commit, self._is_crash_near = None, True
            self._world.loop.call_later(self._random.choice([0.001, 0.02, 0.2, 1.0]), self._crash)
        return self._is_crash_near

    def _crash(self) -> None:
        world, random = self._world, self._random
        self._is_crash_near = False
        share = random.choice([0.0, 0.3, 0.6, 1.0])

        def is_lost(transaction: Transaction, at: At) -> bool:
            # A lane that hangs on a command that was forwarded to it waits for its operator.
            forwards = any(topic in world.rules.families for topic, _ in transaction.partitions)
            is_lanes = transaction.writer.startswith("lane-") and not forwards
            # When its id begins the next one in this very moment, nobody can tell the two apart any more.
            return is_lanes and not transaction.waiting and random.random() < share

        lost = world.kafka.lose_markers(is_lost)
        self.done["lost marker"] += len(lost)
        for transaction, (topic, partition) in lost:
            how = "commit" if transaction.commits else "abort"
            world.note("broker", f"lost the {how} marker of {transaction.writer} in {topic} {partition}")
        self._away("crashes")
        if random.random() < 0.5:
            # What takes a broker down often takes others down too, with what they were about to write or had written.
            self._lie_in_wait("step PRODUCED", "step STORED")

    def _broker_away(self) -> None:
        self._away("is away")

    def _away(self, what: str) -> None:
        world = self._world
        seconds = self._random.choice([0.1, 1.0, 8.0])
        world.note("broker", f"{what}, back in {seconds} s")
        world.is_broker_away = True
        world.loop.call_later(seconds, self._back)

    def _back(self) -> None:
        self._world.is_broker_away = False

    def _clock(self) -> None:
        offset = self._random.choice(_CLOCK_OFFSETS_MS)
        if self._random.random() < 0.4:
            self._world.note("broker", f"its clock is off by {offset} ms")
            self._world.broker_offset = offset
        else:
            node = self._random.choice(self._world.nodes)
            self._world.note(node.name, f"its clock is off by {offset} ms")
            node.clock_offset = offset

    def _leap(self) -> None:
        self._world.leap(self._random.choice(_LEAPS_MS))

    def _retention(self) -> None:
        kafka, random = self._world.kafka, self._random
        topic = random.choice(list(self._world.rules.families))
        partition = random.randrange(self._world.partitions)
        log = kafka.log((topic, partition))
        log.delete_before(random.randint(log.start, log.stable))
        self._world.note("broker", f"{topic} {partition} begins at {log.start} now")

    def _compaction(self) -> None:
        """As on a broker, only what was written some time before the latest record is in a segment that is closed."""
        kafka = self._world.kafka
        for partition in range(self._world.partitions):
            log = kafka.log((STATE_CHANGELOG.name, partition))
            latest = max((record.timestamp for record in log.records), default=0)
            closed = [record.offset for record in log.records if record.timestamp < latest - _SEGMENT_MS]
            log.compact(max(closed, default=-1) + 1, kafka.now(), TOMBSTONES_KEPT_MS)
        self._world.note("broker", "compacted the changelog")

    def _client_transaction(self) -> None:
        self._world.spawn(self._world.clients.use_transaction())

    def _absence(self) -> None:
        """A node is away for long, perhaps from the middle of a restore on, and the changelog forgets deletions."""
        process, random, world = self._process(), self._random, self._world
        if process is None:
            return
        if random.random() < 0.3:
            self._go_away(process)
            return
        process.kill("gets a new disk")
        process.node.disk.clear()
        world.loop.call_later(0.01, world.start_again, process.node, True)
        self._ambushes.append(Ambush("read_changelog", random.randint(1, 3), self._go_away))

    def _go_away(self, process: Process) -> None:
        process.node.is_away = True
        process.kill("is away for long")
        self._world.group.leave(process.name)
        self._absences.append(self._world.spawn(self._stay_away(process.node)))

    async def _stay_away(self, node: Node) -> None:
        random, world = self._random, self._world
        # What is deleted first is forgotten by the third compaction: the second one finds it in a closed segment.
        for _ in range(3):
            world.leap(random.choice([130_000, 600_000]))
            world.clients.send(random.randint(1, 4))
            await asyncio.sleep(random.choice([0.5, 2.0]))
            self._compaction()
        node.come_back()

    def _topics_anew(self) -> None:
        """Somebody deletes all topics and makes them again, while no worker runs."""
        world = self._world
        for node in world.nodes:
            if node.process is not None and not node.process.is_dead:
                node.process.kill("is killed, since the topics are made anew")
                node.process._bury()
        world.note("broker", "all topics are made anew")
        world.kafka.make_anew()
        world.spawn(world.clients.start_over())
