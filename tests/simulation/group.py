"""The consumer group: who owns which partitions, with rebalances that stop all members first (eager)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.faults import PAUSES_S

if TYPE_CHECKING:
    from tests.simulation.process import Process
    from tests.simulation.world import World

SESSION_S = 6.0
"""How long a member may be silent."""


class Group:
    """The group's coordinator, and what its members do in a rebalance."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._members: dict[str, Process] = {}
        self._version = 0
        self._task: asyncio.Task[None] | None = None

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance is under way."""
        return self._task is not None

    def join(self, process: Process) -> None:
        """A member comes."""
        self._members[process.name] = process
        self.rebalance()

    def leave(self, name: str) -> None:
        """A member goes, or its session has expired."""
        if self._members.pop(name, None) is not None:
            self.rebalance()

    def lose(self, name: str) -> None:
        """A member died: nobody notices before its session expires."""
        self._world.loop.call_later(SESSION_S, self.leave, name)

    def rebalance(self) -> None:
        """Give out the partitions anew."""
        self._version += 1
        if self._task is None:
            self._task = self._world.spawn(self._rebalance())

    async def _rebalance(self) -> None:
        version = -1
        while version != self._version:
            version = self._version
            await self._world.moment()
            members = list(self._members.values())
            handed_over = await asyncio.gather(*(self._hand_over(member) for member in members))
            for member, is_there in zip(members, handed_over, strict=True):
                if not is_there:
                    self._members.pop(member.name, None)
        self._task = None
        self._hand_out()

    async def _hand_over(self, member: Process) -> bool:
        """Whether the member has stopped in time; one that has not may go on, and comes back when it finds out."""
        if member.is_dead:
            await asyncio.sleep(SESSION_S)
            return False
        task = member.spawn(member.hand_over())
        done, _ = await asyncio.wait([task], timeout=SESSION_S)
        if done and not member.is_dead:
            return True
        if not member.is_dead:
            self._world.note(member.name, "is silent; the group goes on without it")
            member.spawn(self._come_back(member, task))
        return False

    async def _come_back(self, member: Process, handing_over: asyncio.Task[None]) -> None:
        await asyncio.wait([handing_over])
        self.join(member)

    def _hand_out(self) -> None:
        members = [member for member in self._members.values() if not member.is_dead]
        if not members:
            return
        self._world.random.shuffle(members)
        parts: dict[str, set[int]] = {member.name: set() for member in members}
        for partition in range(self._world.partitions):
            parts[members[partition % len(members)].name].add(partition)
        for member in members:
            self._world.note(member.name, f"is assigned {sorted(parts[member.name])}")
            member.spawn(member.take_over(parts[member.name]))
        if self._world.hits(self._world.rates.rebalance_again):
            self._world.loop.call_later(self._world.random.choice(PAUSES_S), self.rebalance)
