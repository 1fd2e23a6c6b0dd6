"""A process that takes permits of one bucket, in one of several ways, and says how fast: JSON on stdout.

`python -m streams.bench.permit_taker WAY SECONDS RATE TASKS PORT PID...`: first as many as it can for so many seconds,
by so many tasks at once; then `RATE` a second on a fixed schedule. `PORT` is that of Redis; the process ids are those
of the servers, whose processor time counts too. Brokers and prefix come from the environment.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from streams.bench import redis_limits
from streams.bench.processes import cpu_seconds_of
from streams.bench.rate_commands import RULES, bucket_id
from streams.cli.session import load_settings
from streams.client import RunlaneClient
from streams.rate_limiting.limiter import RateLimiter
from streams.user_errors import UserError

Take = Callable[[], Awaitable[object]]

MAX_BLOCK = 10_000
_WARMUP_S = 1.0


@asynccontextmanager
async def blocks() -> AsyncIterator[Take]:
    """Permits from blocks."""
    async with (
        RunlaneClient(load_settings()) as client,
        RateLimiter(client, bucket_id(0), RULES, max_block=MAX_BLOCK) as limiter,
    ):

        async def take() -> None:
            async with limiter.permit():
                pass

        yield take


@asynccontextmanager
async def direct() -> AsyncIterator[Take]:
    """Each permit by a command."""
    async with RunlaneClient(load_settings()) as client:

        async def take() -> None:
            _require_one((await client.acquire_permits(bucket_id(0), RULES)).granted)

        yield take


@asynccontextmanager
async def redis(way: str, tasks: int, port: int) -> AsyncIterator[Take]:
    """Each permit by a script in Redis."""
    from redis.asyncio import Redis

    client: Any = Redis(port=port, max_connections=tasks)
    if way == "windows":
        script, arguments = redis_limits.WINDOWS, redis_limits.windows_arguments(RULES)
    else:
        script, arguments = redis_limits.CELL, redis_limits.cell_arguments(RULES)
    registered, keys = client.register_script(script), [f"{way}:{bucket_id(0)}"]
    try:

        async def take() -> None:
            _require_one((await registered(keys, arguments))[0])

        yield take
    finally:
        await client.aclose()


def _require_one(granted: int) -> None:
    if granted != 1:
        raise UserError("A permit was refused, and the rules never fill.")


async def as_many(take: Take, seconds: float, tasks: int) -> int:
    """How many were taken."""
    end, taken = time.monotonic() + seconds, 0

    async def run() -> None:
        nonlocal taken
        while time.monotonic() < end:
            await take()
            taken += 1
            if not taken % 100:
                # Who waits for nothing would never let others run.
                await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(run())
    return taken


async def on_schedule(take: Take, seconds: float, rate: float) -> list[float]:
    """From when each permit was due to when it was there, in ms."""
    began, waited = time.monotonic() + 0.1, []

    async def one(due: float) -> None:
        await take()
        waited.append((time.monotonic() - due) * 1000)

    async with asyncio.TaskGroup() as group:
        for number in range(round(seconds * rate)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            group.create_task(one(due))
    return waited


async def run(way: str, seconds: float, rate: float, tasks: int, port: int, servers: Sequence[int]) -> None:
    """Take permits, and tell."""
    contender = {"blocks": blocks, "direct": direct}.get(way)
    async with contender() if contender else redis(way, tasks, port) as take:
        await as_many(take, min(_WARMUP_S, seconds), tasks)
        theirs = sum(map(cpu_seconds_of, servers))
        began, own = time.monotonic(), time.process_time()
        taken = await as_many(take, seconds, tasks)
        took, own = time.monotonic() - began, time.process_time() - own
        theirs = sum(map(cpu_seconds_of, servers)) - theirs
        waited = await on_schedule(take, seconds, rate)
    told = {"taken": taken, "seconds": took, "cpu": own, "serverCpu": theirs, "waitedMs": waited}
    sys.stdout.buffer.write(orjson.dumps(told))


if __name__ == "__main__":
    _, way, seconds, rate, tasks, port, *servers = sys.argv
    asyncio.run(run(way, float(seconds), float(rate), int(tasks), int(port), [int(pid) for pid in servers]))
