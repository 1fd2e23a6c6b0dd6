"""Nodes with a disk and a clock, and the worker processes that run on them: real lanes behind simulated ports."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from streams.lane import FaultLimits, Lane, RestoreProgress, Step
from streams.lane_host import LaneHost
from streams.lane_log import LaneLog
from streams.lane_runner import BatchLimits
from streams.ports import LaneLostError, StoreBrokenError
from tests.simulation.consumer import SimulatedConsumer
from tests.simulation.faults import FREEZES_S, PAUSES_S
from tests.simulation.memory_cluster import MemoryLaneCluster
from tests.simulation.memory_store import DiskStore, MemoryStore, MemoryStores
from tests.simulation.virtual_loop import SimulatedThread

if TYPE_CHECKING:
    from tests.simulation.world import World

OWNER: contextvars.ContextVar[Process | None] = contextvars.ContextVar("owner", default=None)
"""The process whose code runs."""

TOMBSTONES_KEPT_MS = 120_000
_NO_HALT = FaultLimits(share=1.0, minimum=10**9)
_LONGEST_WAIT_S = 0.1
_LONGEST_FREEZE_S = 3.0


class KilledError(BaseException):
    """The process is gone at this point."""


class Node:
    """A computer: its disk and its clock outlast the processes on it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk: dict[int, DiskStore] = {}
        self.backup: dict[int, DiskStore] = {}
        self.clock_offset = 0
        self.process: Process | None = None
        self.is_away = False
        """No worker is started on it for now."""
        self._started = 0

    def now(self) -> int:
        """The node's clock, in milliseconds since the epoch."""
        return self.world.time_ms() + self.clock_offset

    def start(self, *, takes_predecessor_out: bool = True) -> Process:
        """Start a worker; it takes its dead predecessor out of the group, unless that fails."""
        before = self.process
        assert before is None or before.is_dead
        if before is not None and takes_predecessor_out:
            self.world.group.leave(before.name)
        self._started += 1
        self.process = Process(self, f"{self.name}.{self._started}")
        return self.process

    def come_back(self) -> None:
        """Start a worker again, unless it came back some other way."""
        if self.is_away:
            self.is_away = False
            if self.process is None or self.process.is_dead:
                self.start()


class Process:
    """One worker process. Implements `tests.simulation.memory_cluster.Network` for its lanes."""

    def __init__(self, node: Node, name: str) -> None:
        self.world = world = node.world
        self.node = node
        self.name = name
        self.is_dead = False
        self._thaws_at = 0.0
        self._hears_at = 0.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._threads: list[SimulatedThread] = []
        self._callbacks = asyncio.Lock()
        self._stores = MemoryStores(self.call, node.disk)
        self._context = contextvars.copy_context()
        self._context.run(OWNER.set, self)
        topics = tuple(world.rules.families)
        self.consumer = SimulatedConsumer(self, topics)
        self.host = LaneHost(
            topics,
            self._make_lane,
            self.consumer,
            world.metrics,
            limits=BatchLimits(world.batch_commands, 1_000_000),
            max_pending=world.max_pending,
            max_commits=world.max_commits,
            stall_alarm_s=30.0,
            cluster=world.cluster_watch,
        )
        world.processes.append(self)
        world.note(name, "starts")
        self.spawn(self.consumer.run())
        world.loop.call_later(world.random.choice([0.01, 0.3]), self._join)

    @property
    def is_frozen(self) -> bool:
        """Stopped by SIGSTOP, or by a long pause of its computer."""
        return self.world.loop.now < self._thaws_at

    def freeze(self, seconds: float) -> None:
        """Nothing of it runs for so long."""
        self.world.note(self.name, f"freezes for {seconds} s")
        self._thaws_at = self.world.loop.now + seconds

    def deafen(self, seconds: float) -> None:
        """It does not hear from the group for so long, and goes on."""
        self.world.note(self.name, f"does not hear from the group for {seconds} s")
        self._hears_at = self.world.loop.now + seconds

    def calm(self) -> None:
        """End what was done to it."""
        self._thaws_at = self._hears_at = 0.0

    async def until_thawed(self) -> None:
        """Return when it runs again."""
        await self._until(lambda: self._thaws_at)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run in the event loop as a part of this process."""
        return self.world.loop.create_task(work, context=self._context.copy())

    def own_task(self, task: asyncio.Task[Any]) -> None:
        """A task that ends with the process."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def own_thread(self, thread: SimulatedThread) -> None:
        """A thread that ends with the process."""
        self._threads.append(thread)

    async def hand_over(self) -> None:
        """The group revoked all partitions."""
        async with self._callbacks:
            await self._until_it_hears()
            self.consumer.revoke()
            await self.host.quiesce()
            self.world.note(self.name, "has handed over")

    async def take_over(self, partitions: set[int]) -> None:
        """The group assigned partitions."""
        async with self._callbacks:
            await self.world.moment()
            await self._until_it_hears()
            self.consumer.assign(partitions)
            await self.host.assign(partitions)

    async def stop(self) -> None:
        """SIGTERM: hand over, leave the group, close the lanes."""
        self.world.note(self.name, "stops")
        self.consumer.revoke()
        await self.host.quiesce()
        self.world.group.leave(self.name)
        await self.host.close()
        self.kill("has ended")

    def kill(self, how: str = "is killed") -> None:
        """End it at once; callable from its own threads, whose next call then ends them."""
        if self.is_dead:
            return
        self.is_dead = True
        self.world.note(self.name, how)
        self.world.group.lose(self.name)
        self.world.loop.call_soon(self._bury)

    def _bury(self) -> None:
        for task in sorted(self._tasks, key=lambda task: task.get_name()):
            task.cancel()
        for thread in self._threads:
            thread.kill(KilledError())
        for disk in self.node.disk.values():
            disk.is_open = False
        self.world.on_death(self.node)

    def call(self, name: str) -> None:
        """See `Network`: also called at every access to a store and at every step."""
        if self.is_dead:
            raise KilledError
        world = self.world
        world.loop.count_call()
        if world.traces_calls:
            world.note(self.name, f"- {name}")
        if world.is_troubled:
            world.chaos.reached(self, name)
            if self.is_dead:
                raise KilledError
            self._strike(name)
        thread = world.loop.current_thread()
        if thread is None:
            return
        is_remote = not name.startswith(("store", "step", "close"))
        while self.is_frozen or (is_remote and world.is_broker_away):
            left = self._thaws_at - world.loop.now
            thread.suspend(min(left, _LONGEST_FREEZE_S) if left > 0 else _LONGEST_WAIT_S)
        if self.is_dead:
            raise KilledError

    def loses_request(self) -> bool:
        """See `Network`."""
        rates = self.world.rates
        return self.world.hits(rates.request_lost + rates.request_late)

    def loses_answer(self) -> bool:
        """See `Network`."""
        return self.world.hits(self.world.rates.answer_lost)

    def later(self, work: Callable[[], None]) -> bool:
        """See `Network`."""
        rates, random = self.world.rates, self.world.random
        is_late = random.random() * (rates.request_lost + rates.request_late) < rates.request_late
        if is_late:
            self.world.loop.call_later(random.choice(PAUSES_S), work)
        return is_late

    def _strike(self, name: str) -> None:
        """Perhaps something goes wrong at this call."""
        world = self.world
        rates, random = world.rates, world.random
        dice = random.random()
        rate = rates.kill_at_step if name.startswith("step") else rates.kill
        if dice < rate:
            self.kill(f"is killed at {name}")
            raise KilledError
        dice -= rate
        if dice < rates.freeze:
            self.freeze(random.choice(FREEZES_S))
            world.group.rebalance()
        dice -= rates.freeze
        if 0 <= dice < rates.pause:
            thread = world.loop.current_thread()
            if thread is not None:
                thread.suspend(random.choice(PAUSES_S))
        dice -= rates.pause
        if name.startswith("store"):
            if 0 <= dice < rates.store_breaks and name in ("store write", "store open"):
                world.note(self.name, f"{name} fails")
                raise StoreBrokenError("the disk failed once")
        elif 0 <= dice < rates.lost and not name.startswith(("step", "close")):
            world.note(self.name, f"{name} fails")
            raise LaneLostError(f"{name}: timed out")

    async def _until_it_hears(self) -> None:
        await self._until(lambda: max(self._thaws_at, self._hears_at))

    async def _until(self, time: Callable[[], float]) -> None:
        """Return at a time that may be moved meanwhile."""
        left = time() - self.world.loop.now
        while left > 0:
            await asyncio.sleep(min(left, _LONGEST_FREEZE_S))
            left = time() - self.world.loop.now

    def _join(self) -> None:
        if not self.is_dead:
            self.world.group.join(self)

    def _make_lane(
        self, partition: int, stopping: Callable[[], bool], on_restore: Callable[[RestoreProgress], None]
    ) -> Lane:
        world = self.world

        def on_produce(name: str) -> None:
            store = lane._store
            assert isinstance(store, MemoryStore)
            world.recording.produced(name.split(" ")[0], self.name, store.batch)

        def at_step(step: Step) -> None:
            self.call(f"step {step.name}")

        cluster = MemoryLaneCluster(
            world.kafka, partition, self, refuses=world.refuses, on_produce=on_produce
        )
        lane = Lane(
            partition,
            LaneLog(partition, cluster, world.new_id),
            self._stores,
            world.rules,
            faults=_NO_HALT,
            tombstones_kept_ms=TOMBSTONES_KEPT_MS,
            on_restore=on_restore,
            at_step=at_step,
            wall_clock=self.node.now,
        )
        # A real lock would stop the one real thread.
        lane._lock = _SimulatedLock(world)  # type: ignore[assignment]
        return lane


class _SimulatedLock(AbstractContextManager[None]):
    """A lock for simulated threads."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            thread = self._world.loop.current_thread()
            assert thread is not None
            thread.suspend(_LONGEST_WAIT_S)
        self._is_held = True

    def __exit__(self, *error: object) -> None:
        self._is_held = False
