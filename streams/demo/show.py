"""The demo from its first to its last line: start everything, submit, kill the worker, prove, stop."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from rich.console import Console

from schemas.topics import RUN_COMMANDS
from streams import topic_admin
from streams.child_process import ExecutorChild, WorkerChild, free_port
from streams.client import RunlaneClient
from streams.demo.airport_runs import SURVEY
from streams.demo.closing import Expected, problems
from streams.demo.ledger import Ledger, read_ledger
from streams.demo.observer import Observer, Sight
from streams.demo.plan import PlannedRun, plan_runs
from streams.demo.screen import Screen
from streams.messaging.kafka_config import producer_config
from streams.settings import Settings
from streams.user_errors import UserError

_EXECUTOR_APP = "streams.demo.airport_runs:app"
_AT_ONCE = 40
"""Runs that are submitted and have not ended."""
_SUBMITTERS = 10
_ATTEMPTS = 10
_STANDS_STILL_S = 120.0
_SETTLING_S = 20.0
_BROKEN = (b"{", b'{"type": "run.submit"}', b'{"type": "run.fly", "commandId": "f", "runId": "survey"}')
"""Sent on purpose: no JSON, no id, no such command."""

Say = Callable[[str], None]
Act = Coroutine[Any, Any, None]


@dataclass(frozen=True)
class Outcome:
    """What came of a demo."""

    settings: Settings
    """Brokers and prefix of its topics."""
    ledger: Ledger
    expected: Expected
    seconds: float
    """From the first submit to the last end."""
    outage_s: float | None
    """From the kill -9 of the worker until the next one served; None when none was killed."""

    @property
    def problems(self) -> list[str]:
        """What is not as it has to be, in words; empty when all is well."""
        return problems(self.ledger, self.expected)


async def run_demo(
    base: Settings, brokers: str, *, runs: int, kill: bool, console: Console, step: Say
) -> Outcome:
    """Play the demo on these brokers, under a prefix of its own. Raises `UserError` when it cannot go on.

    `step` gets a line per step before and after; `console` shows what happens meanwhile. Ends every process
    that it started, also when it is cancelled. Keeps the processes' logs when something is wrong, and says so.
    """
    planned = plan_runs(runs)
    folder = Path(tempfile.mkdtemp(prefix="runlane-demo-"))
    keep_folder = True
    try:
        outcome = await _run(_fresh_settings(base, brokers, folder), folder, planned, kill, console, step)
        keep_folder = bool(outcome.problems)
    except asyncio.CancelledError:
        keep_folder = False
        raise
    finally:
        if keep_folder:
            step(f"keeping the logs of worker and executor in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return outcome


def _fresh_settings(base: Settings, brokers: str, folder: Path) -> Settings:
    prefix = f"{base.name('demo')}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    own = {"brokers": brokers, "prefix": prefix, "data_dir": folder / "data"}
    return base.model_copy(update={**own, "web_host": "127.0.0.1", "web_port": free_port()})


async def _run(
    settings: Settings, folder: Path, planned: list[PlannedRun], kill: bool, console: Console, step: Say
) -> Outcome:
    step(f"making the topics {settings.name('*')}")
    await asyncio.to_thread(topic_admin.apply, settings)
    worker = WorkerChild(folder, settings)
    executor = ExecutorChild(folder, settings, _EXECUTOR_APP)
    try:
        worker.start()
        executor.start()
        step(f"starting a worker (process {worker.pid}) and an executor (process {executor.pid})")
        await asyncio.to_thread(worker.wait_ready)
        await asyncio.to_thread(executor.wait_ready)
        return await _Play(settings, planned, worker, executor, console).play(kill=kill)
    finally:
        step("stopping the worker and the executor")
        for process in (executor, worker):
            process.ask_to_stop()
        for process in (executor, worker):
            process.wait_ended()


class _Play:
    """The part of the demo in which runs run."""

    def __init__(
        self,
        settings: Settings,
        planned: list[PlannedRun],
        worker: WorkerChild,
        executor: ExecutorChild,
        console: Console,
    ) -> None:
        self._settings = settings
        self._planned = planned
        self._worker = worker
        self._executor = executor
        self._sight = Sight(runs=len(planned))
        self._screen = Screen(console, self._sight)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._third_ended = asyncio.Event()
        self._all_ended = asyncio.Event()
        self._worker_may_be_dead = False
        self._outage_s: float | None = None

    async def play(self, *, kill: bool) -> Outcome:
        started = time.monotonic()
        with self._screen:
            async with RunlaneClient(self._settings, delivery_timeout_s=None) as client:
                observer = Observer(client, self._worker, self._sight, self._saw_end)
                needed: list[Act] = [self._submit_all(client), self._wait_for_ends()]
                if kill:
                    needed.append(self._kill_worker())
                await _all_of(needed, [*observer.watches(), self._screen.show(), self._guard()])
        seconds = time.monotonic() - started
        self._executor.ask_to_stop()
        await asyncio.to_thread(self._executor.wait_ended)
        expected = Expected(
            runs=len(self._planned),
            failing=sum(run.fails for run in self._planned),
            broken=len(_BROKEN),
            sent_twice=sum(run.sent_twice for run in self._planned),
        )
        return Outcome(self._settings, await self._settled_ledger(), expected, seconds, self._outage_s)

    async def _submit_all(self, client: RunlaneClient) -> None:
        waiting = iter(self._planned)
        await asyncio.gather(*(self._submit_some(client, waiting) for _ in range(_SUBMITTERS)))

    async def _submit_some(self, client: RunlaneClient, waiting: Iterator[PlannedRun]) -> None:
        for run in waiting:
            await self._room.acquire()
            command_id = f"submit-{run.run_id}"
            for _ in range(2 if run.sent_twice else 1):
                await client.submit(run.run_id, SURVEY, run.params, command_id=command_id, attempts=_ATTEMPTS)
            self._sight.submitted += 1
            if run is self._planned[len(self._planned) // 2]:
                await asyncio.to_thread(self._send_broken)

    def _send_broken(self) -> None:
        producer = Producer(producer_config(self._settings, None))
        for value in _BROKEN:
            producer.produce(self._settings.name(RUN_COMMANDS.name), value, "survey")
        producer.flush()

    def _saw_end(self) -> None:
        self._room.release()
        if self._sight.done >= len(self._planned) // 3:
            self._third_ended.set()
        if self._sight.done >= len(self._planned):
            self._all_ended.set()

    async def _wait_for_ends(self) -> None:
        await self._all_ended.wait()

    async def _kill_worker(self) -> None:
        """kill -9 when a third of the runs have ended, and start a worker on the same folder again."""
        await self._third_ended.wait()
        sight = self._sight
        self._worker_may_be_dead = True
        killed_at = time.monotonic()
        pid = self._worker.pid
        await asyncio.to_thread(self._worker.kill)
        self._screen.say(
            f"kill -9 of the worker (process {pid}): {sight.done} runs have ended, {len(sight.running)} are running"
        )
        sight.news = f"process {pid} was killed by kill -9, the next one starts"
        self._worker.start()
        await asyncio.to_thread(self._worker.wait_ready)
        self._outage_s = time.monotonic() - killed_at
        self._worker_may_be_dead = False
        sight.news = f"process {self._worker.pid} took over {self._outage_s:.1f} s after the kill -9 of {pid}"
        self._screen.say(f"a new worker (process {self._worker.pid}) serves {self._outage_s:.1f} s later")

    async def _guard(self) -> None:
        """Raises `UserError` when a process ends by itself, or nothing happens for long."""
        seen, seen_at = -1, time.monotonic()
        while True:
            await asyncio.sleep(1)
            self._executor.require_alive()
            if not self._worker_may_be_dead:
                self._worker.require_alive()
            count = self._sight.events.count + self._sight.submitted
            if count != seen:
                seen, seen_at = count, time.monotonic()
            elif time.monotonic() - seen_at > _STANDS_STILL_S:
                raise UserError(
                    f"Nothing has happened for {_STANDS_STILL_S:.0f} s: {self._sight.done} of "
                    f"{len(self._planned)} runs have ended.\nThe end of the worker's log:\n{self._worker.tail()}\n"
                    f"The end of the executor's log:\n{self._executor.tail()}"
                )

    async def _settled_ledger(self) -> Ledger:
        """The account, read again while commands that came last may still be on their way."""
        deadline = time.monotonic() + _SETTLING_S
        while True:
            ledger = await asyncio.to_thread(read_ledger, self._settings)
            if ledger.is_clean or time.monotonic() > deadline:
                return ledger
            await asyncio.sleep(1)


async def _all_of(needed: list[Act], background: list[Act]) -> None:
    """Run everything until what is needed is done. Raises the first error; leaves nothing running."""
    open_tasks = {asyncio.create_task(act) for act in needed}
    others = {asyncio.create_task(act) for act in background}
    everything = open_tasks | others
    try:
        while open_tasks:
            done, _ = await asyncio.wait(open_tasks | others, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            open_tasks -= done
    finally:
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
