"""A process that takes permits in every way, until it is killed; one line on stdout for each grant or call.

`python -m tests.crash.rate_client SEED`; brokers and prefix come from the environment.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from random import Random
from typing import Any
from uuid import uuid4

from schemas.rate_rules import RateRule
from streams.client import RunlaneClient
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.rate_limiting.limiter import RateLimiter
from streams.settings import Settings


def _rule(kind: Any, permits: int, window_ms: int, concurrency: int | None = None) -> RateRule:
    name = f"{kind}-{window_ms}"
    return RateRule(
        rule_id=name,
        kind=kind,
        requests_per_window=permits,
        window_ms=window_ms,
        max_concurrency=concurrency,
    )


RULES = {
    "org:window": [_rule("window", 40, 500), _rule("window", 200, 4000)],
    "org:sliding": [_rule("sliding", 50, 700), _rule("window", 250, 5000)],
    "org:bucket": [_rule("bucket", 30, 400)],
    "org:bounded": [_rule("sliding", 60, 1000, 7)],
    "org:mixed": [_rule("window", 25, 300), _rule("sliding", 100, 2000), _rule("bucket", 60, 900)],
}
"""By bucket. All clients together want more than that."""

LEASE_MS = 1500
WAIT_MS = 1000
_TASKS = 3
_PATIENCE_S = 100.0
"""For a broker that is just being started again."""
_OPTIONS: Any = {"timeout": 4.0, "attempts": 100}


NOTE = "granted\n"


def note() -> None:
    """Say that something was granted."""
    sys.stdout.write(NOTE)
    sys.stdout.flush()


async def acquire(client: RunlaneClient, source: Random) -> None:
    """Ask for permits one by one: at once or with waiting, some given back in part, some never."""
    while True:
        bucket = source.choice(list(RULES))
        command_id = uuid4().hex
        requested = source.randint(1, 4)
        given = await client.acquire_permits(
            bucket,
            RULES[bucket],
            requested=requested,
            minimum=source.choice([1, requested]),
            run_id=source.choice(["a", "b", None]),
            timeout_ms=source.choice([0, WAIT_MS]),
            lease_ms=LEASE_MS,
            command_id=command_id,
            **_OPTIONS,
        )
        if not given.granted:
            await asyncio.sleep(min(0.2, given.wait_ms / 1000))
            continue
        note()
        if source.random() < 0.1:
            continue
        # What has run out meanwhile cannot be settled any more.
        with suppress(CommandRefused):
            used = source.randint(0, given.granted)
            if given.lease_id is None:
                if source.random() < 0.2:
                    await client.settle_permits(bucket, used, acquire_command_id=command_id, **_OPTIONS)
            elif source.random() < 0.7:
                await asyncio.sleep(source.uniform(0, 0.1))
                await client.release_lease(bucket, given.lease_id, given.fencing_number or 0, **_OPTIONS)
            else:
                await client.settle_permits(bucket, used, lease_id=given.lease_id, **_OPTIONS)


async def take(limiter: RateLimiter, source: Random) -> None:
    """Make calls under blocks."""
    while True:
        try:
            async with limiter.permit(source.randint(1, 3)) as permit:
                note()
                if source.random() < 0.1:
                    permit.used = 0
                await asyncio.sleep(source.uniform(0, 0.05))
        except (CommandTimeout, CommandNotDelivered):
            await asyncio.sleep(0.1)


async def run(seed: int) -> None:
    """All at once, without end."""
    source = Random(seed)
    client = RunlaneClient(Settings(), delivery_timeout_s=None)
    await client.open(_PATIENCE_S)
    async with asyncio.TaskGroup() as group:
        for _ in range(_TASKS):
            group.create_task(acquire(client, source))
        for bucket, rules in RULES.items():
            if not any(rule.max_concurrency for rule in rules):
                limiter = RateLimiter(client, bucket, rules, block_s=LEASE_MS / 1000, max_block=8)
                group.create_task(take(limiter, source))


if __name__ == "__main__":
    asyncio.run(run(int(sys.argv[1])))
