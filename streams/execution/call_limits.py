"""Permits for the calls of runs: one limiter for each bucket, shared by all runs of an executor."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from streams.execution.insistence import outlast
from streams.rate_calls import RateCalls
from streams.rate_limiting.limiter import RateLimiter


class CallLimits:
    """The limiters of one executor, for the buckets that its calls name; their rules are those that are stored."""

    def __init__(self, client: RateCalls) -> None:
        self._client = client
        self._limiters: dict[str, RateLimiter] = {}

    @asynccontextmanager
    async def permit(self, bucket_id: str | None, cost: int) -> AsyncIterator[None]:
        """Hold `cost` permits of a bucket, once they are granted; of None, nothing.

        Raises as `RateLimiter.permit`, but waits for a coordinator that is away, without end.
        """
        if bucket_id is None:
            yield
            return
        limiter = self._limiters.get(bucket_id)
        if limiter is None:
            limiter = self._limiters[bucket_id] = RateLimiter(self._client, bucket_id)
        async with AsyncExitStack() as permit:
            # A context for each try: one that has failed cannot be entered again.
            await outlast(
                lambda: permit.enter_async_context(limiter.permit(cost)),
                f"a wait for permits of {bucket_id!r}",
            )
            yield

    async def close(self) -> None:
        """Give back what is unused."""
        for limiter in self._limiters.values():
            await limiter.close()
