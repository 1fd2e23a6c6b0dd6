"""A rate limit in a program: permits for calls, from blocks that are leased from the shared bucket.

    limiter = RateLimiter(client, "org:openai", [RateRule(rule_id="rpm", requests_per_window=500, window_ms=60_000)])
    async with limiter.permit(cost=3) as permit:
        response = await http.post(...)
        await limiter.respect(response.status_code, response.headers)
        permit.used = response.tokens

Most permits cost no round trip: the limiter holds a block of them. A busy program asks a few times per second, and a
quiet one holds next to nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial, wraps
from operator import index
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from schemas.rate_commands import MAX_COOLDOWN_MS
from schemas.rate_rules import MAX_PERMITS, RateRule
from streams.async_functions import is_async
from streams.rate_calls import RateCalls
from streams.rate_limiting.blocks import Blocks
from streams.rate_limiting.known_rules import KnownRules
from streams.rate_limiting.leases import CallLeases
from streams.rate_limiting.permits import Permit, RateLimited
from streams.rate_limiting.shared_bucket import SharedBucket
from streams.retry_after import retry_after_s

P = ParamSpec("P")
T = TypeVar("T")


class RateLimiter:
    """Permits of one bucket, for the tasks of one event loop. Make one for a bucket and share it.

    Calls under rules with `max_concurrency` get a lease each, which is renewed while the call lasts, unless it blocks
    the event loop, and released when it ends; all others are served from blocks. A block that is lost with its process
    counts as used until its `block_s` are over and a window has passed; see `runlane rates show`.
    """

    def __init__(
        self,
        client: RateCalls,
        bucket_id: str,
        rules: Sequence[RateRule] | None = None,
        *,
        run_id: str | None = None,
        max_block: int = 1000,
        block_s: float = 10.0,
        lease_s: float = 30.0,
        max_waiting: int = 10_000,
        estimates: bool = False,
        longest_retry_s: float = 3600.0,
    ) -> None:
        """`rules` None: those that are stored for the bucket; whether they bound concurrency is asked again every 10 s.
        `run_id`: for which run, for a fair share.

        `max_block`: most permits in one block; 1 or more. `block_s`: how long a block lasts, 1 or more: so long after
        `penalize` others may still use theirs. `lease_s`: where `max_concurrency` bounds calls, how long
        after a process has died others get what it held, 1 or more; calls that last longer renew their leases.
        `max_waiting`: more calls than that do not wait (`RateLimited`). `estimates`: calls often use less than they
        take, so a block is settled when its calls have ended, instead of when its permits are taken: what is unused is
        not lost, but all of the block counts for so much longer. `longest_retry_s`: a `Retry-After` that asks for more
        counts as this, since no cooldown of a bucket can be taken back.
        """
        self.bucket_id = bucket_id
        self._max_waiting = max_waiting
        self._longest_retry_s = longest_retry_s
        self._bucket = SharedBucket(client, bucket_id, rules, run_id)
        self._rules = KnownRules(self._bucket, rules)
        self._blocks = Blocks(self._bucket, most=max_block, lease_ms=int(block_s * 1000), estimates=estimates)
        self._leases = CallLeases(self._bucket, self._rules, int(lease_s * 1000))

    @property
    def waiting(self) -> int:
        """How many calls wait for permits here."""
        return self._blocks.waiting + self._leases.waiting

    @property
    def block_size(self) -> int:
        """How many permits the next block is to have."""
        return self._blocks.next_size

    @asynccontextmanager
    async def permit(self, cost: int = 1, timeout: float | None = None) -> AsyncIterator[Permit]:
        """Wait for a permit, at most `timeout` seconds, and hold it for the call in the `async with` block.

        Raises `TimeoutError`, `RateLimited` when too many wait here, `CommandRefused` when it can never be granted
        (`RATE_NEVER_GRANTED`) or the bucket has no rules, and what the client raises when the coordinator is away
        (`CommandTimeout`, `CommandNotDelivered`); `ValueError` or `TypeError` for a cost that no block can have.
        """
        cost = index(cost)
        if not 1 <= cost <= MAX_PERMITS:
            raise ValueError(f"a call costs 1 to {MAX_PERMITS:,} permits, not {cost:,}")
        permit = Permit(cost, cost)
        async with asyncio.timeout(timeout):
            end_call = await self._begin_call(permit)
        try:
            yield permit
        finally:
            end_call()

    def limited(
        self, cost: int = 1
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Decorator: each call of the async function takes a permit first, and raises as `permit` does.

        Raises `TypeError` when it decorates what is no async function.
        """

        def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
            if not is_async(function):
                raise TypeError(
                    f"limited() decorates functions that are defined by `async def` and return a result, and "
                    f"{function!r} is none; for anything else, write `async with limiter.permit():` around its calls"
                )

            @wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> T:
                async with self.permit(cost):
                    return await function(*args, **kwargs)

            return call

        return decorate

    async def respect(self, status: int, headers: Mapping[str, str]) -> bool:
        """Do as an HTTP response asks by `Retry-After` (429 and 503), for `longest_retry_s` at most.

        Returns whether it asked for anything.
        """
        seconds = retry_after_s(status, headers)
        if not seconds:
            return False
        await self.penalize(min(seconds, self._longest_retry_s))
        return True

    async def penalize(self, seconds: float) -> None:
        """Let nobody who shares the bucket have permits for a while; what is unused here is given back at once.

        0 or less does nothing. It cannot be taken back. Raises `ValueError` for more than a year.
        """
        if not seconds <= MAX_COOLDOWN_MS / 1000:
            raise ValueError(f"a cooldown lasts a year at most, not {seconds} s")
        if seconds <= 0:
            return
        self._blocks.drop()
        await self._bucket.penalize(seconds)

    async def close(self) -> None:
        """Give back what is unused, for 15 s at most; calls that wait are cancelled."""
        await self._blocks.cancel_waiting()
        self._rules.close()
        await self._leases.close()
        self._blocks.close()
        await self._bucket.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _begin_call(self, permit: Permit) -> Callable[[], None]:
        """Wait until a call has its permits; returns what gives them back, or charges more, when it has ended."""
        if await self._rules.bound_concurrency():
            self._require_room()
            lease = await self._leases.lease(permit.cost)
            return partial(self._blocks.owe, permit) if lease is None else self._leases.keep(lease, permit)
        block = self._blocks.take(permit.cost)
        if block is None:
            self._require_room()
            block = await self._blocks.wait(permit.cost)
        return partial(self._blocks.end_call, block, permit)

    def _require_room(self) -> None:
        if self.waiting >= self._max_waiting:
            raise RateLimited(
                f"{self.waiting} calls wait for permits of {self.bucket_id!r} in this process already",
                "make fewer calls at a time, or raise the limiter's max_waiting",
            )
