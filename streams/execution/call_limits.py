"""Permits for the calls of runs: one limiter for each bucket, shared by all runs of an executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from streams.client import RunlaneClient
from streams.rate_limiter import RateLimiter


class CallLimits:
    """The limiters of one executor, for the buckets that its calls name; their rules are those that are stored."""

    def __init__(self, client: RunlaneClient) -> None:
        self._client = client
        self._limiters: dict[str, RateLimiter] = {}

    @asynccontextmanager
    async def permit(self, bucket_id: str | None, cost: int) -> AsyncIterator[None]:
        """Hold `cost` permits of a bucket, once they are granted; of None, nothing. Raises as `RateLimiter.permit`."""
        if bucket_id is None:
            yield
            return
        limiter = self._limiters.get(bucket_id)
        if limiter is None:
            limiter = self._limiters[bucket_id] = RateLimiter(self._client, bucket_id)
        async with limiter.permit(cost):
            yield

    async def close(self) -> None:
        """Give back what is unused."""
        for limiter in self._limiters.values():
            await limiter.close()
