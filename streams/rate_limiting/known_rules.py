"""What a limiter knows of its bucket's rules: whether they bound concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from schemas.rate_rules import RateRule
from streams.rate_limiting.shared_bucket import SharedBucket

_AGE_S = 10.0
"""How old may be what is known of the stored rules."""


class KnownRules:
    """The rules of the bucket: those that are named for good, or the stored ones as they were a few seconds ago."""

    def __init__(self, bucket: SharedBucket, named: Sequence[RateRule] | None) -> None:
        """`named` None: the stored ones count."""
        self._bucket = bucket
        self._has_concurrency = named is not None and any(rule.limit.concurrency for rule in named)
        self._known_until = float("-inf") if named is None else float("inf")
        """Until when `_has_concurrency` counts, by the clock of the event loop."""
        self._learning: asyncio.Task[None] | None = None

    async def bound_concurrency(self) -> bool:
        """Whether a call needs a lease of its own. Stored rules are asked for when what is known is older than 10 s.

        Raises what the client raises: `CommandRefused`, `CommandTimeout`, `CommandNotDelivered`.
        """
        loop = asyncio.get_running_loop()
        if loop.time() >= self._known_until:
            if self._learning is None or self._learning.done():
                self._learning = loop.create_task(self._learn())
            await asyncio.shield(self._learning)
        return self._has_concurrency

    def forget(self) -> None:
        """They are not as they were: ask before the next call."""
        self._known_until = min(self._known_until, asyncio.get_running_loop().time())

    def close(self) -> None:
        """Ask no more; calls that wait for the answer are cancelled."""
        if self._learning is not None:
            self._learning.cancel()

    async def _learn(self) -> None:
        begun = asyncio.get_running_loop().time()
        stored = await self._bucket.stored_rules()
        self._has_concurrency = any(rule.max_concurrency for rule in stored)
        self._known_until = begun + _AGE_S
