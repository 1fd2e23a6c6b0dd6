"""One schedule: a cluster, nodes with workers, clients and trouble, all decided by one seed.

First there is trouble while clients send; then all is well, and everything that was sent has to get done; then all
workers are started again, and what they restore has to be the same.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from agents.families import FAMILIES, Family
from schemas.topics import DEAD_LETTERS, EXCLUSIVE_TOPICS, STATE_CHANGELOG
from streams import healing, lane_host
from streams.lane_rules import LaneRules
from streams.metrics import Metrics
from streams.ports import OutRecord
from tests.simulation.chaos import Chaos
from tests.simulation.clients import REFUSED_MARK, Clients
from tests.simulation.failing_machine import FailingMachine
from tests.simulation.faults import PAUSES_S, Rates, draw_plan
from tests.simulation.group import Group
from tests.simulation.judge import judge, transactions
from tests.simulation.memory_kafka import MemoryKafka
from tests.simulation.process import OWNER, Node, Process
from tests.simulation.quiet import left_to_do
from tests.simulation.recording import Recording, recorded_batches
from tests.simulation.virtual_loop import SimulatedThread, StandstillError, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

START_MS = 1_700_000_000_000
QUIET_WITHIN_S = 180.0

REPEAT_LIMIT = 6
REPEAT_MS = 24 * 3_600_000
MAX_COMMAND_BYTES = 2000

_METRICS = Metrics()
_REFUSABLE = {spec.name for spec in EXCLUSIVE_TOPICS} - {STATE_CHANGELOG.name, DEAD_LETTERS.name}
_FAMILIES = {
    family.commands.topic: Family(family.name, family.commands, FailingMachine(family.machine))
    for family in FAMILIES
}


class _HealthyCluster:
    """See `streams.cluster_watch.ClusterWatch`."""

    topics_changed = False

    def problem(self) -> None:
        """All is well."""


class _Loop(VirtualLoop):
    """Tasks and threads belong to the process whose code makes them."""

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **options)
        context = options.get("context")
        owner = context.get(OWNER) if context is not None else OWNER.get()
        if owner is not None:
            owner.own_task(task)
        return task

    def on_thread(self, thread: SimulatedThread) -> None:
        if (owner := OWNER.get()) is not None:
            owner.own_thread(thread)


class World:
    """Everything of one schedule."""

    def __init__(
        self, seed: int, on_note: Callable[[str], None] | None = None, *, traces_calls: bool = False
    ) -> None:
        """`on_note(line)` is told what happens, as it happens; with `traces_calls` also each call of a lane."""
        self.seed = seed
        self.random = random = Random(seed)
        self._on_note = on_note
        self.traces_calls = traces_calls
        self.violations: list[str] = []
        self.notes: list[tuple[float, str, str]] = []
        self.loop = _Loop(lambda: random.choice(PAUSES_S[:3]))
        self.partitions = 2
        self.plan = draw_plan(random)
        self.rates = self.plan.rates
        self.is_troubled = True
        self.is_broker_away = False
        self.leap_ms = 0
        self.broker_offset = 0
        self.rules = LaneRules(
            families=_FAMILIES,
            partitions=self.partitions,
            max_command_bytes=MAX_COMMAND_BYTES,
            repeat_limit=REPEAT_LIMIT,
            repeat_ms=REPEAT_MS,
            full_name=str,
        )
        self.batch_commands = random.choice([1, 3, 8, 100])
        self.max_pending = random.choice([5, 100])
        self.max_commits = random.choice([1, 4])
        self.metrics = _METRICS
        self.cluster_watch: Any = _HealthyCluster()
        self.recording = Recording()
        self.kafka = MemoryKafka(
            self.partitions,
            now=lambda: self.time_ms() + self.broker_offset,
            wait=self._wait_for_markers,
            send_marker=self._send_marker,
            elapsed=self.loop.time,
        )
        self.kafka.on_readable = self._on_readable
        self.group = Group(self)
        self.nodes = [Node(self, name) for name in ("A", "B", "C")[: random.choice([2, 2, 3])]]
        self.processes: list[Process] = []
        """All that ever lived."""
        self.clients = Clients(self)
        self.chaos = Chaos(self)
        self._openings = itertools.count(1)
        self._context = contextvars.copy_context()

    def run(self) -> list[str]:
        """Live through the schedule; returns what is wrong, one sentence each, also in `violations`."""
        try:
            with recorded_batches(), _quick_and_quiet(self.loop):
                self.violations = self.loop.run_until_complete(self._live())
        except StandstillError as error:
            self.violations = [f"liveness: {error}"]
        finally:
            self._bury_all()
            self.loop.steps = 0
            self.loop.run_until_complete(self._end_tasks())
            self.loop.close()
        return self.violations

    def tally(self) -> Counter[str]:
        """How often things happened."""
        committed = [len(transactions(self.kafka, partition)) for partition in range(self.partitions)]
        lost = sum(process.consumer.reasons for process in self.processes)
        return Counter(
            {
                "commands": self.clients.sent,
                "transactions": sum(committed),
                "transactions that failed": len(self.recording.batches) - sum(committed),
                "openings": next(self._openings) - 1,
                "worker processes": len(self.processes),
                "chunks lost or late": lost,
                **{f"times: {what}": number for what, number in self.chaos.done.items()},
            }
        )

    def owners(self, partition: int) -> list[Process]:
        """The live workers that the group gave the lane."""
        live = [node.process for node in self.nodes if node.process is not None and not node.process.is_dead]
        return [process for process in live if partition in process.host._owned]

    def time_ms(self) -> int:
        """The true time, in milliseconds since the epoch."""
        return START_MS + self.leap_ms + int(self.loop.now * 1000)

    def note(self, who: str, what: str) -> None:
        """Something happened that belongs into the readable schedule."""
        self.notes.append((self.loop.now, who, what))
        if self._on_note is not None:
            self._on_note(note_line(self.notes[-1]))

    def hits(self, rate: float) -> bool:
        """Whether something of this probability happens."""
        return rate > 0 and self.random.random() < rate

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run as a part of the world, of no process."""
        return self.loop.create_task(work, context=self._context.copy())

    async def moment(self) -> None:
        """Let others run; sometimes a little time passes."""
        if self.is_troubled and self.random.random() < 0.25:
            await asyncio.sleep(self.random.choice(PAUSES_S[:4]))
        else:
            await asyncio.sleep(0)

    def new_id(self) -> str:
        """The name of a lane's opening."""
        return f"o{next(self._openings)}"

    def refuses(self, record: OutRecord) -> bool:
        """Whether the broker does not take a record."""
        return record.topic in _REFUSABLE and REFUSED_MARK in (record.value or b"")

    def on_death(self, node: Node) -> None:
        """A node lost its worker; somebody starts another one."""
        delay = self.random.choice([0.05, 0.5, 3.0])
        takes_out = self.random.random() < 0.8
        self.loop.call_later(delay, self.start_again, node, takes_out)

    def start_again(self, node: Node, takes_predecessor_out: bool) -> None:
        """Start a worker on a node, unless there is one, or the node is away."""
        if not node.is_away and (node.process is None or node.process.is_dead):
            node.start(takes_predecessor_out=takes_predecessor_out)

    async def _live(self) -> list[str]:
        for node in self.nodes:
            self.loop.call_later(self.random.choice([0.0, 0.2, 2.0]), self.start_again, node, True)
        sending = self.spawn(self.clients.run())
        trouble = self.spawn(self.chaos.run())
        await sending
        await asyncio.sleep(self.random.choice([0.0, 1.0, 5.0]))
        trouble.cancel()
        await self.chaos.end()
        self._calm_down()
        if problem := await self._until_quiet("after the trouble"):
            return [problem, *self.loop.failures]
        self._restart_all()
        if problem := await self._until_quiet("after all were started again"):
            return [problem, *self.loop.failures]
        return [*self.loop.failures, *judge(self)]

    def _calm_down(self) -> None:
        self.note("world", "all is well from now on")
        self.is_troubled = False
        self.is_broker_away = False
        self.rates = Rates()
        self.clients.end_transactions()
        for node in self.nodes:
            node.is_away = False
            for disk in node.disk.values():
                disk.is_broken = False
            if node.process is None or node.process.is_dead:
                node.start()
            else:
                node.process.calm()

    def _restart_all(self) -> None:
        """New workers everywhere, some on new disks."""
        for node in self.nodes:
            if node.process is not None:
                node.process.kill("is killed at the end")
                node.process._bury()
            if self.random.random() < 0.5:
                node.disk.clear()
        if self.random.random() < 0.3:
            self.leap(self.random.choice([70_000, 86_500_000, 8 * 86_400_000]))
        for node in self.nodes:
            node.start()

    def leap(self, ms: int) -> None:
        """All clocks go forward, as after a long pause of everything."""
        self.note("world", f"{ms / 1000:.0f} s pass at once")
        self.leap_ms += ms

    async def _until_quiet(self, when: str) -> str | None:
        """Return None once everything is done; what is not, when that takes too long."""
        deadline = self.loop.now + QUIET_WITHIN_S
        while left := left_to_do(self):
            if self.loop.now > deadline:
                return f"liveness: {when}, not done within {QUIET_WITHIN_S:.0f} s: {left}"
            await asyncio.sleep(1.0)
        return None

    def _wait_for_markers(self) -> None:
        thread = self.loop.current_thread()
        assert thread is not None
        thread.suspend(0.01)

    def _send_marker(self, write: Callable[[], None], commits: bool) -> None:
        if self.chaos.delays_marker(commits):
            self.loop.call_later(5.0, write)
        elif self.hits(self.rates.marker_late):
            self.loop.call_later(self.random.choice(PAUSES_S), write)
        else:
            write()

    def _on_readable(self, topic: str, partition: int) -> None:
        if topic in self.rules.families:
            for node in self.nodes:
                if node.process is not None:
                    node.process.consumer.tell()

    async def _end_tasks(self) -> None:
        """Let tasks that were cancelled end, while there is a loop."""
        for _ in range(5):
            await asyncio.sleep(0)

    def _bury_all(self) -> None:
        for node in self.nodes:
            if node.process is not None:
                node.process.is_dead = True
                node.process._bury()
        for thread in list(self.loop.threads.values()):
            thread.kill(KeyboardInterrupt())


def note_line(note: tuple[float, str, str]) -> str:
    """A line of the readable schedule."""
    at, who, what = note
    return f"{at:10.4f}  {who:9} {what}"


@contextmanager
def _quick_and_quiet(loop: VirtualLoop) -> Iterator[None]:
    """Markers are lost or there: nobody waits for them. Nothing is logged, nothing given back to the system."""

    def sleep(seconds: float) -> None:
        if thread := loop.current_thread():
            thread.suspend(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(healing.Healing, "marker_patience_s", 0.0)
        patch.setattr(healing, "time", SimpleNamespace(monotonic=loop.time, sleep=sleep))
        patch.setattr(lane_host, "return_free_memory", lambda: None)
        disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)
