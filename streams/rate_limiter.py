"""A rate limit in a program: permits for calls, from blocks that are leased from the shared bucket.

    limiter = RateLimiter(client, "org:openai", [RateRule(rule_id="rpm", requests_per_window=500, window_ms=60_000)])
    async with limiter.permit(cost=3) as permit:
        response = await http.post(...)
        await limiter.respect(response.status_code, response.headers)
        permit.used = response.tokens

Most permits cost no round trip: the limiter holds a block of them. How large the next block is follows how fast the
last ones were used up, so that a busy program asks a few times per second, and a quiet one holds next to nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from operator import index
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from schemas.errors import ErrorCode
from schemas.rate_commands import MAX_COOLDOWN_MS, MAX_WAIT_MS
from schemas.rate_results import AcquireResult
from schemas.rate_rules import MAX_PERMITS, RateRule
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.rate_calls import RateCalls
from streams.retry_after import retry_after_s
from streams.user_errors import UserError

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

_BLOCK_TARGET_S = 0.5
"""A block that was used up sooner makes the next one larger."""
_ASK_MS = 10_000
"""So long the first command of a call waits in the bucket's queue, and each further one twice as long: what takes many
permits would lose its turn before they have come back."""
_CLOSE_S = 15.0
"""Longest time for giving back: what is not given back by then runs out by itself."""
_MARGIN = 0.1
"""The last part of a block's life is not used, so that it is settled before it runs out."""
_RULES_S = 10.0
"""How old may be what is known of the stored rules: whether they bound concurrency."""
_PAUSE_S = 0.5
_ATTEMPTS = 3
_RENEWALS_PER_LEASE = 3


class RateLimited(UserError):
    """More calls wait for permits in this process than may."""


@dataclass
class Permit:
    """The right to make a call."""

    cost: int
    """What was taken for it."""
    used: int
    """What the call has used in the end. Set it when that is not `cost`: the difference is given back or charged."""
    is_lost: bool = False
    """Its lease has ended before the call has, so that others may make calls in its place."""


@dataclass(eq=False)
class _Block:
    """Permits that may be used until `deadline`, by the clock of the event loop."""

    lease_id: str
    granted: int
    left: int
    begun: float
    deadline: float
    running: int = 0
    """Calls that have permits of it and have not ended."""
    is_settled: bool = False


@dataclass(frozen=True)
class _Lease:
    """The lease of one call."""

    lease_id: str
    fencing_number: int


@dataclass(eq=False)
class _Waiter:
    cost: int
    block: asyncio.Future[_Block]


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
        self._client = client
        self.bucket_id = bucket_id
        self._rules = rules
        self._run_id = run_id
        self._max_block = max_block
        self._block_ms = int(block_s * 1000)
        self._lease_ms = int(lease_s * 1000)
        self._max_waiting = max_waiting
        self._estimates = estimates
        self._longest_retry_s = longest_retry_s
        self._has_concurrency = rules is not None and any(rule.limit.concurrency for rule in rules)
        self._known_until = float("-inf") if rules is None else float("inf")
        """Until when `_has_concurrency` counts, by the clock of the event loop."""
        self._learning: asyncio.Task[None] | None = None
        self._block: _Block | None = None
        self._size = 1
        self._asks_ms = _ASK_MS
        self._waiters: deque[_Waiter] = deque()
        self._leasing: set[asyncio.Task[_Lease | None]] = set()
        """Of calls that wait for a lease of their own."""
        self._refilling: asyncio.Task[None] | None = None
        self._settling: set[asyncio.Task[None]] = set()
        self._away_until = 0.0
        self._owed = 0
        """Permits that calls have used beyond what they took, to be taken from the next block."""

    @property
    def waiting(self) -> int:
        """How many calls wait for permits here."""
        return len(self._waiters) + len(self._leasing)

    @property
    def block_size(self) -> int:
        """How many permits the next block is to have."""
        return self._size

    @asynccontextmanager
    async def permit(self, cost: int = 1, timeout: float | None = None) -> AsyncIterator[Permit]:
        """Wait for a permit, at most `timeout` seconds, and hold it for the call in the `async with` block.

        Raises `TimeoutError`, `RateLimited` when too many wait here, `CommandRefused` when it can never be granted
        (`RATE_NEVER_GRANTED`) or the bucket has no rules, and what the client raises when the coordinator is away.
        """
        cost = index(cost)
        if not 1 <= cost <= MAX_PERMITS:
            raise ValueError(f"a call costs 1 to {MAX_PERMITS:,} permits, not {cost:,}")
        permit = Permit(cost, cost)
        async with asyncio.timeout(timeout):
            held = await (self._lease_one(cost) if await self._is_bounded() else self._take(cost))
        if isinstance(held, _Block):
            try:
                yield permit
            finally:
                self._correct(held, permit)
            return
        renewing = asyncio.create_task(self._keep(held, permit)) if held is not None else None
        try:
            yield permit
        finally:
            if held is None or renewing is None:
                self._owed += max(0, permit.used - cost)
            else:
                renewing.cancel()
                self._end_lease(held, permit)

    def limited(self, cost: int = 1) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]:
        """Decorator: each call of the async function takes a permit first."""

        def decorate(function: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
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
        loop = asyncio.get_running_loop()
        self._away_until = max(self._away_until, loop.time() + seconds)
        self._drop_block()
        await self._client.penalize(self.bucket_id, max(1, int(seconds * 1000)), attempts=_ATTEMPTS)

    async def close(self) -> None:
        """Give back what is unused; calls that wait are cancelled."""
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        for waiter in self._waiters:
            waiter.block.cancel()
        self._waiters.clear()
        if self._learning is not None:
            self._learning.cancel()
        for task in self._leasing:
            task.cancel()
        await asyncio.gather(*self._leasing, return_exceptions=True)
        if self._block is not None:
            self._settle_block(self._block)
            self._block = None
        if self._owed:
            owed, self._owed = self._owed, 0
            self._later(self._charge(owed))
        if self._settling:
            _, late = await asyncio.wait(self._settling, timeout=_CLOSE_S)
            for task in late:
                task.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _is_bounded(self) -> bool:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._known_until:
            if self._learning is None or self._learning.done():
                self._learning = loop.create_task(self._learn())
            await asyncio.shield(self._learning)
        return self._has_concurrency

    async def _learn(self) -> None:
        begun = asyncio.get_running_loop().time()
        stored = await self._client.get_rate_rules(self.bucket_id, attempts=_ATTEMPTS)
        self._has_concurrency = any(rule.max_concurrency for rule in stored.rules)
        self._known_until = begun + _RULES_S

    async def _take(self, cost: int) -> _Block:
        """Take permits from the block, or wait until a later one has them."""
        loop = asyncio.get_running_loop()
        block = self._block
        if block is not None and not self._waiters and block.left >= cost and loop.time() < block.deadline:
            self._give(block, cost)
            if not block.left:
                self._used_up(block)
            return block
        self._check_room()
        waiter = _Waiter(cost, loop.create_future())
        self._waiters.append(waiter)
        if self._refilling is None or self._refilling.done():
            self._refilling = loop.create_task(self._refill())
        try:
            return await waiter.block
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif waiter.block.done() and not waiter.block.cancelled() and not waiter.block.exception():
                # The permits came at the last moment: the call is not made.
                self._correct(waiter.block.result(), Permit(cost, 0))
            raise

    def _check_room(self) -> None:
        if self.waiting >= self._max_waiting:
            raise RateLimited(
                f"{self.waiting} calls wait for permits of {self.bucket_id!r} in this process already",
                "make fewer calls at a time, or raise the limiter's max_waiting",
            )

    async def _refill(self) -> None:
        """Lease blocks for as long as somebody waits."""
        try:
            while self._waiters:
                await self._refill_once()
        except Exception as error:
            # All who wait would meet the same: no rules, a cost that is never granted, a broker that is away.
            waiters, self._waiters = self._waiters, deque()
            for waiter in waiters:
                if not waiter.block.done():
                    waiter.block.set_exception(error)

    async def _refill_once(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._away_until - loop.time()))
        if not self._waiters:
            return
        self._drop_block()
        first = self._waiters[0].cost
        wanted = min(sum(waiter.cost for waiter in self._waiters), self._max_block)
        begun = loop.time()
        try:
            given = await self._granted(
                self._client.lease_permits(
                    self.bucket_id,
                    self._rules,
                    requested=max(first, wanted, self._size),
                    minimum=first,
                    run_id=self._run_id,
                    timeout_ms=self._asks_ms,
                    lease_ms=self._block_ms,
                    attempts=_ATTEMPTS,
                )
            )
        except CommandRefused as refusal:
            if refusal.code != ErrorCode.RATE_NEVER_GRANTED:
                raise
            # The others may cost less.
            waiter = self._waiters.popleft() if self._waiters and self._waiters[0].cost == first else None
            if waiter is not None and not waiter.block.done():
                waiter.block.set_exception(refusal)
            return
        if given is None or given.lease_id is None:
            self._asks_ms = min(2 * self._asks_ms, MAX_WAIT_MS)
            return
        self._asks_ms = _ASK_MS
        deadline = begun + ((given.valid_ms or 0) - _MARGIN * self._block_ms) / 1000
        block = _Block(given.lease_id, given.granted, given.granted - self._owed, begun, deadline)
        self._owed = 0
        self._block = block
        loop.call_at(deadline, self._out_of_time, block)
        if loop.time() < self._away_until:
            self._drop_block()
        else:
            self._serve(block)

    def _serve(self, block: _Block) -> None:
        """Give a block's permits to those who wait, in their order."""
        now = asyncio.get_running_loop().time()
        while self._waiters and self._waiters[0].cost <= block.left and now < block.deadline:
            waiter = self._waiters.popleft()
            if not waiter.block.done():
                self._give(block, waiter.cost)
                waiter.block.set_result(block)
        if block.left <= 0:
            self._used_up(block)

    def _give(self, block: _Block, cost: int) -> None:
        block.left -= cost
        block.running += 1

    def _used_up(self, block: _Block) -> None:
        """Every permit is taken. When that was fast, the next block is larger."""
        if asyncio.get_running_loop().time() - block.begun < _BLOCK_TARGET_S:
            self._size = min(2 * self._size, self._max_block)
        if not self._estimates:
            self._drop_block()

    def _out_of_time(self, block: _Block) -> None:
        """A block's time is over; when much of it is left, the next one is smaller."""
        if block is self._block:
            if 2 * block.left >= block.granted:
                self._size = max(1, self._size // 2)
            self._block = None
        self._settle_block(block)

    def _drop_block(self) -> None:
        """Take no more permits from the block, if there is one, and settle it."""
        block, self._block = self._block, None
        if block is not None and not (self._estimates and block.running):
            self._settle_block(block)

    def _settle_block(self, block: _Block) -> None:
        if not block.is_settled:
            block.is_settled = True
            self._later(self._settle(block.lease_id, block.granted - block.left))

    def _correct(self, block: _Block, permit: Permit) -> None:
        """A call has ended, and has used what it took, or less, or more.

        What is left serves the next calls. What is missing in a block that is settled is taken from the next one.
        """
        block.running -= 1
        difference = permit.cost - max(0, permit.used)
        if block.is_settled:
            self._owed += max(0, -difference)
            return
        block.left += difference
        if block is self._block:
            if block.left > 0 or block.running:
                return
            self._block = None
        if not block.running:
            self._settle_block(block)

    async def _lease_one(self, cost: int) -> _Lease | None:
        """A lease for one call; None: permits without one, for the stored rules bound concurrency no more."""
        self._check_room()
        leasing = asyncio.get_running_loop().create_task(self._leased(cost))
        self._leasing.add(leasing)
        leasing.add_done_callback(self._leasing.discard)
        try:
            return await leasing
        except asyncio.CancelledError:
            if leasing.done() and not leasing.cancelled() and not leasing.exception():
                # The lease came at the last moment: the call is not made.
                lease = leasing.result()
                if lease is not None:
                    self._later(self._settle(lease.lease_id, 0))
            raise

    async def _leased(self, cost: int) -> _Lease | None:
        loop, asks_ms = asyncio.get_running_loop(), _ASK_MS
        while True:
            await asyncio.sleep(max(0.0, self._away_until - loop.time()))
            given = await self._granted(
                self._client.acquire_permits(
                    self.bucket_id,
                    self._rules,
                    requested=cost,
                    minimum=cost,
                    run_id=self._run_id,
                    timeout_ms=asks_ms,
                    lease_ms=self._lease_ms,
                    attempts=_ATTEMPTS,
                )
            )
            if given is None:
                asks_ms = min(2 * asks_ms, MAX_WAIT_MS)
            elif given.lease_id is not None and given.fencing_number is not None:
                return _Lease(given.lease_id, given.fencing_number)
            else:
                self._known_until = min(self._known_until, loop.time())
                return None

    async def _keep(self, lease: _Lease, permit: Permit) -> None:
        """Renew the lease of a call again and again while the call lasts."""
        pause_s = renewal_s = self._lease_ms / 1000 / _RENEWALS_PER_LEASE
        while True:
            await asyncio.sleep(pause_s)
            try:
                renewal = await self._client.renew_lease(
                    self.bucket_id,
                    lease.lease_id,
                    lease.fencing_number,
                    lease_ms=self._lease_ms,
                    timeout=max(1.0, renewal_s),
                )
            except (CommandRefused, CommandTimeout, CommandNotDelivered) as error:
                _log.warning("a lease of bucket %r was not renewed: %s", self.bucket_id, error)
                pause_s = min(_PAUSE_S, renewal_s)
                continue
            if not renewal.renewed:
                permit.is_lost = True
                _log.warning("a lease of bucket %r has ended before its call", self.bucket_id)
                return
            pause_s = renewal_s

    async def _granted(self, asking: Coroutine[Any, Any, AcquireResult]) -> AcquireResult | None:
        """What was granted; None, after a pause, when it was nothing. Nobody's permits are given back."""
        task = asyncio.get_running_loop().create_task(asking)
        try:
            given = await asyncio.shield(task)
        except asyncio.CancelledError:
            self._later(self._give_back(task))
            raise
        except CommandRefused as refusal:
            if refusal.code != ErrorCode.RATE_QUEUE_FULL:
                raise
            await asyncio.sleep(_PAUSE_S)
            return None
        if not given.granted:
            await asyncio.sleep(min(_PAUSE_S, given.wait_ms / 1000))
            return None
        return given

    async def _give_back(self, asking: asyncio.Task[AcquireResult]) -> None:
        given = await asking
        if given.lease_id is not None:
            await self._settle(given.lease_id, 0)

    def _end_lease(self, lease: _Lease, permit: Permit) -> None:
        if permit.used == permit.cost:
            self._later(self._release(lease))
        else:
            self._later(self._settle(lease.lease_id, permit.used))

    async def _release(self, lease: _Lease) -> None:
        await self._client.release_lease(
            self.bucket_id, lease.lease_id, lease.fencing_number, attempts=_ATTEMPTS
        )

    async def _settle(self, lease_id: str, used: int) -> None:
        await self._client.settle_permits(self.bucket_id, used, lease_id=lease_id, attempts=_ATTEMPTS)

    async def _charge(self, owed: int) -> None:
        """Charge permits that calls have used beyond what they took, when no block is to come."""
        given = await self._client.lease_permits(
            self.bucket_id, self._rules, requested=1, lease_ms=self._block_ms, attempts=_ATTEMPTS
        )
        if given.lease_id is not None:
            await self._settle(given.lease_id, owed)

    def _later(self, work: Awaitable[None]) -> None:
        async def done() -> None:
            try:
                await work
            except (CommandRefused, CommandTimeout, CommandNotDelivered) as error:
                # It expires by itself then.
                _log.info("a lease of bucket %r was not given back: %s", self.bucket_id, error)

        task = asyncio.get_running_loop().create_task(done())
        self._settling.add(task)
        task.add_done_callback(self._settling.discard)
