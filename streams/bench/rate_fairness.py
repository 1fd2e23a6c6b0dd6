"""Fairness of a rate bucket: ten runs with one command each come after a run that has 1,000 waiting."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from schemas.rate_rules import RateRule
from streams.client import RunlaneClient
from streams.settings import Settings
from streams.user_errors import UserError

RUNS = 10
_BUCKET = "org:fair"
_RULES = [RateRule(rule_id="slow", requests_per_window=1, window_ms=20, kind="bucket")]
_LEASE_MS = 300_000
_PATIENCE_S = 60.0


async def places(settings: Settings, waiting: int) -> list[int]:
    """At which place each of the ten was served, from 1, when permits began to come after all of them waited."""
    served: list[str] = []
    quiet = [f"quiet-{number}" for number in range(RUNS)]
    async with RunlaneClient(settings) as client:

        async def ask(run_id: str) -> None:
            given = await client.acquire_permits(_BUCKET, _RULES, run_id=run_id, timeout_ms=_LEASE_MS)
            if given.granted != 1:
                raise UserError("A command that waits for a permit was given none.")
            served.append(run_id)

        # A block that holds the only permit keeps all waiting until it is given back.
        held = await client.lease_permits(_BUCKET, _RULES, requested=1, lease_ms=_LEASE_MS)
        busy = [asyncio.create_task(ask("busy")) for _ in range(waiting)]
        await _until_waiting(client, waiting)
        asked = [asyncio.create_task(ask(run_id)) for run_id in quiet]
        await _until_waiting(client, waiting + RUNS)
        await client.settle_permits(_BUCKET, 0, lease_id=held.lease_id)
        await asyncio.gather(*asked)
        for task in busy:
            task.cancel()
        for task in busy:
            with suppress(asyncio.CancelledError):
                await task
    return [served.index(run_id) + 1 for run_id in quiet]


async def _until_waiting(client: RunlaneClient, count: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while (found := (await client.peek_permits(_BUCKET, _RULES)).waiting) < count:
        if time.monotonic() > deadline:
            raise UserError(f"{found:,} commands wait instead of {count:,}.")
        await asyncio.sleep(0.05)
