"""Carries faults out, and says what the processes did that they must not do."""

from __future__ import annotations

import asyncio
import math
import signal
import time
from collections.abc import Callable

from streams.torture.pauses import FaultWindow, Pauses
from streams.torture.proxy import LinkFault
from streams.torture.schedule import BROKER, FaultKind, PlannedFault
from streams.torture.site import Site, Victim, WorkerVictim

_POLL_S = 0.1
_PATIENCE_S = 120.0
_HELD_S = 0.2
_GAVE_UP = 70
"""Exit code of a worker that could not hand over within its deadline."""
_LINK_FAULTS = {
    FaultKind.LINK_SLOW: LinkFault.SLOW,
    FaultKind.LINK_CUT: LinkFault.CUT,
    FaultKind.LINK_BLACK_HOLE: LinkFault.BLACK_HOLE,
    FaultKind.LINK_STALLED: LinkFault.STALLED,
    FaultKind.LINK_ANSWERS_LOST: LinkFault.ANSWERS_LOST,
    FaultKind.LINK_DOUBLED: LinkFault.DOUBLED,
    FaultKind.LINK_LATE: LinkFault.LATE,
}


class Faults:
    """Harms a site. `problems` has what must not have happened meanwhile, in words."""

    def __init__(self, site: Site, pauses: Pauses) -> None:
        self.problems: list[str] = []
        self._site = site
        self._pauses = pauses

    async def carry_out(self, fault: PlannedFault) -> None:
        """One fault, from when its target is free until the harm is taken back."""
        victim = None if fault.target == BROKER else self._site.victims[fault.target]
        in_hand = self._site.broker_in_hand if victim is None else victim.in_hand
        if fault.alone:
            # What was killed before may still be starting, and have nothing that could be harmed.
            await self.until_all_work()
        async with in_hand:
            if victim is not None and victim.link is not None and fault.kind in _LINK_FAULTS:
                # Without a process at one end and a broker at the other a link has nothing to harm.
                async with self._site.broker_in_hand:
                    pass
                await self._wait_for(lambda: _uses_its_link(victim), f"{victim.name} connects to the broker")
            window = self._pauses.begin(fault, time.monotonic())
            await self._harm(fault, window, victim)
            self._pauses.undone(window, time.monotonic())

    async def until_all_work(self) -> None:
        """Wait until every worker is ready, and every executor has partitions if there are enough of them."""
        site = self._site
        for worker in site.workers.values():
            await self._wait_for(worker.process.is_ready, f"{worker.name} is ready")
        due = min(len(site.executors), site.settings.partitions)
        await self._wait_for(lambda: site.executors_at_work() >= due, f"{due} executors have partitions")

    async def watch(self) -> None:
        """Notes processes that end by themselves, and starts them again; until it is cancelled."""
        while True:
            await asyncio.sleep(_POLL_S)
            for victim in self._site.victims.values():
                code = victim.process.running.poll() if victim.is_meant_to_run else None
                if code is not None:
                    self.problems.append(
                        f"{victim.name} ended by itself with code {code}; the end of its log:\n"
                        f"{victim.process.tail()}"
                    )
                    victim.start()

    async def _harm(self, fault: PlannedFault, window: FaultWindow, victim: Victim | None) -> None:
        if victim is None:
            await self._harm_broker(fault)
        elif fault.kind in _LINK_FAULTS:
            await self._harm_link(fault, victim)
        elif fault.kind is FaultKind.WORKER_FROZEN:
            await self._freeze(fault, victim)
        elif fault.kind is FaultKind.WORKER_RESTARTED:
            await self._terminate(window, victim)
            await asyncio.sleep(fault.lasts_s)
            victim.start()
        elif fault.kind is FaultKind.WORKER_VISITS:
            await self._visit(fault, window, victim)
        else:
            await self._kill(fault, victim)

    async def _harm_broker(self, fault: PlannedFault) -> None:
        site = self._site
        with site.outages.one():
            if fault.kind is FaultKind.BROKER_FROZEN:
                await self._freeze_broker(fault)
            else:
                await self._kill_broker(fault)

    async def _freeze_broker(self, fault: PlannedFault) -> None:
        self._site.freeze_broker()
        try:
            await asyncio.sleep(fault.lasts_s)
        finally:
            self._site.thaw_broker()

    async def _kill_broker(self, fault: PlannedFault) -> None:
        site = self._site
        await asyncio.to_thread(site.kill_broker)
        await asyncio.sleep(fault.lasts_s)
        if fault.alone:
            # Waiting is all that a worker may do without a broker.
            for worker in site.workers.values():
                await self._wait_for(worker.is_live, f"{worker.name} is live while the broker is away")
        await asyncio.to_thread(site.start_broker)

    async def _harm_link(self, fault: PlannedFault, victim: Victim) -> None:
        link = victim.link
        if link is None:
            raise ValueError(f"{victim.name} has no link")
        kind = _LINK_FAULTS[fault.kind]
        # Late requests do harm in the moment in which they are held back, and in that in which they arrive.
        once_s, calm_s = (
            (_HELD_S, fault.delay_s + _HELD_S) if kind is LinkFault.LATE else (fault.lasts_s, 0.0)
        )
        ends_at = time.monotonic() + fault.lasts_s
        try:
            while time.monotonic() < ends_at:
                link.impose(kind, fault.delay_s)
                await asyncio.sleep(once_s)
                link.heal()
                await asyncio.sleep(calm_s)
        finally:
            link.heal()

    async def _freeze(self, fault: PlannedFault, victim: Victim) -> None:
        victim.process.freeze()
        try:
            await asyncio.sleep(fault.lasts_s)
            others = [worker for worker in self._site.workers.values() if worker is not victim]
            if fault.alone and others:
                # It has to wake up as a zombie: with others at work in its place.
                await self._wait_for(lambda: _own_everything(others, self._site), "others own all lanes")
                before = list(self._pauses.done)
                await self._wait_for(
                    lambda: all(now > then for now, then in zip(self._pauses.done, before, strict=True)),
                    "others work on all partitions",
                )
        finally:
            victim.process.thaw()

    async def _kill(self, fault: PlannedFault, victim: Victim) -> None:
        victim.is_meant_to_run = False
        await asyncio.to_thread(victim.process.kill)
        if isinstance(victim, WorkerVictim):
            if fault.kind is FaultKind.WORKER_KILLED_STATE_LOST:
                await asyncio.to_thread(victim.process.lose_state)
            elif fault.kind is FaultKind.WORKER_KILLED_DISK_LOST:
                await asyncio.to_thread(victim.process.lose_disk)
        await asyncio.sleep(fault.lasts_s)
        victim.start()

    async def _visit(self, fault: PlannedFault, window: FaultWindow, victim: Victim) -> None:
        if not isinstance(victim, WorkerVictim):
            raise ValueError(f"{victim.name} is no worker")
        site = self._site
        victim.start()
        await self._wait_for(victim.process.is_ready, f"{victim.name} is ready")
        share = math.ceil(site.settings.partitions / (len(site.workers) + 1))
        if fault.alone and share * len(site.workers) < site.settings.partitions:
            # Otherwise the group may leave everything as it was.
            await self._wait_for(lambda: victim.lanes() > 0, f"{victim.name} serves a lane")
        await asyncio.sleep(fault.lasts_s)
        await self._terminate(window, victim)

    async def _terminate(self, window: FaultWindow, victim: Victim) -> None:
        victim.is_meant_to_run = False
        code = await asyncio.to_thread(victim.process.stop)
        # Something else may keep it from handing over, or from having got as far as to hear of it.
        allowed = {0, _GAVE_UP, -signal.SIGTERM} if window.overlaps else {0}
        if code not in allowed:
            self.problems.append(
                f"{victim.name} ended with code {code} after SIGTERM; the end of its log:\n{victim.process.tail()}"
            )

    async def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        began = time.monotonic()
        while not await asyncio.to_thread(condition):
            if self._site.outages.served_s(began, time.monotonic()) > _PATIENCE_S:
                self.problems.append(f"not within {_PATIENCE_S:.0f} s: {what}")
                return
            await asyncio.sleep(_POLL_S)


def _uses_its_link(victim: Victim) -> bool:
    return victim.link is not None and victim.link.is_used


def _own_everything(workers: list[WorkerVictim], site: Site) -> bool:
    return sum(worker.lanes() for worker in workers) == site.settings.partitions
