"""A program that holds a permit for ever: `python -m tests.integration.permit_holder BROKERS PREFIX BUCKET LEASE_S`."""

from __future__ import annotations

import asyncio
import sys

from streams.client import RunlaneClient
from streams.rate_limiting.limiter import RateLimiter
from streams.settings import Settings


async def main() -> None:
    """Say `held` when it has the permit."""
    brokers, prefix, bucket, lease_s = sys.argv[1:]
    async with (
        RunlaneClient(Settings(brokers=brokers, prefix=prefix)) as client,
        RateLimiter(client, bucket, lease_s=float(lease_s)).permit(),
    ):
        print("held", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
