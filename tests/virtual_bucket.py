"""Clients of rate buckets and a lane in memory, on an event loop with virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from schemas.replies import ReplyError
from schemas.results import Result
from streams.client_errors import CommandRefused, SentCommand
from streams.command_methods import CallOptions
from streams.rate_calls import RateCalls
from tests.rate_lane import RateLane
from tests.simulation.virtual_loop import VirtualLoop
from tests.small_lane import Reply

T = TypeVar("T")
R = TypeVar("R", bound=Result)

START_MS = 1_700_000_000_000


def run_virtually(work: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """The result of a coroutine on a new event loop; nothing that it leaves behind may have failed."""
    loop = VirtualLoop(lambda: 0.0)
    try:
        result = loop.run_until_complete(work(loop))
        assert loop.failures == []
        return result
    finally:
        asyncio.set_event_loop(None)
        loop.close()


class VirtualServer:
    """The lane: commands are processed when they arrive, timers fire when they are due."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.lane = RateLane()
        self.commands: list[tuple[str, dict[str, Any]]] = []
        """Type and fields of all commands, in order."""
        self.first_grant_s: float | None = None
        """When permits were granted first, in virtual seconds."""
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._numbers = itertools.count()

    @property
    def now(self) -> int:
        """In milliseconds since the epoch."""
        return START_MS + int(self.loop.time() * 1000)

    async def process(self, type_: str, key: str, fields: Mapping[str, Any]) -> Reply:
        """Process a command, and wait for its reply."""
        command_id = f"v{next(self._numbers)}"
        self.commands.append((type_, dict(fields)))
        self.tick()
        reply = self.lane.send(type_, key, command_id=command_id, **fields)
        if reply == {"waits": True}:
            self._waiting[command_id] = self.loop.create_future()
        self.tick()
        reply = await self._waiting[command_id] if command_id in self._waiting else reply
        granted_at = reply.get("result", {}).get("grantedAt")
        if self.first_grant_s is None and granted_at is not None:
            self.first_grant_s = (granted_at - START_MS) / 1000
        return reply

    def tick(self) -> None:
        """Let the lane's time catch up."""
        self.lane.pass_time(max(0, self.now - self.lane.now))
        for command_id, reply in self.lane.late:
            self._waiting[command_id].set_result(reply)
        self.lane.late.clear()
        due = min((due for due, _ in self.lane.timers.values()), default=None)
        if due is not None:
            self.loop.call_at((due - START_MS) / 1000, self.tick)


class VirtualCalls(RateCalls):
    """A client that reaches the server after some time, and hears from it after some more."""

    def __init__(self, server: VirtualServer, random: Random, latency_s: float = 0.005) -> None:
        self._server = server
        self._random = random
        self._latency_s = latency_s
        self.is_dead = False
        """Its process has crashed: nothing that it sends arrives."""

    async def _ask(
        self,
        answer: type[R],
        command_type: str,
        key: str,
        fields: Mapping[str, Any],
        wait_ms: int,
        options: CallOptions,
    ) -> R:
        return await self._call(answer, command_type, key, fields, options)

    async def _call(
        self, answer: type[R], command_type: str, key: str, fields: Mapping[str, Any], options: CallOptions
    ) -> R:
        given = {name: value for name, value in fields.items() if value is not None}
        await self._delay()
        reply = await self._server.process(command_type, key, given)
        await self._delay()
        if reply["ok"]:
            return answer.model_validate(reply["result"])
        command = SentCommand(command_type, "c", "bucketId", key, "rate-commands", 0)
        raise CommandRefused(command, ReplyError.model_validate(reply["error"]))

    async def _delay(self) -> None:
        await asyncio.sleep(self._latency_s * self._random.uniform(0.2, 3))
        if self.is_dead:
            await asyncio.Event().wait()
