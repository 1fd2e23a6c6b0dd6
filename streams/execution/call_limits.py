"""Permits for the calls of runs: one limiter for each bucket, shared by all runs of an executor."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from streams.client_errors import CommandNotDelivered, CommandTimeout
from streams.execution.insistence import Pauses
from streams.rate_calls import RateCalls
from streams.rate_limiting.limiter import RateLimiter

_log = logging.getLogger("runlane.executor")


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
        pauses = Pauses()
        async with AsyncExitStack() as permit:
            while True:
                try:
                    await permit.enter_async_context(limiter.permit(cost))
                    break
                except CommandTimeout as error:
                    _log.warning("permits of %r were not granted yet, going on: %s", bucket_id, error)
                except CommandNotDelivered as error:
                    if not error.retriable:
                        raise
                    _log.warning("permits of %r were not asked for yet, going on: %s", bucket_id, error)
                await pauses.take()
            yield

    async def close(self) -> None:
        """Give back what is unused."""
        for limiter in self._limiters.values():
            await limiter.close()
