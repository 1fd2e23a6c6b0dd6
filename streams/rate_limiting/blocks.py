"""Blocks of permits that are leased from the shared bucket, and the calls that wait for the next one.

How large the next block is follows how fast the last ones were used up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from schemas.errors import ErrorCode
from streams.client_errors import CommandRefused
from streams.rate_limiting.permits import Permit
from streams.rate_limiting.shared_bucket import Patience, SharedBucket

_TARGET_S = 0.5
"""A block that was used up sooner makes the next one larger."""
_MARGIN = 0.1
"""The last part of a block's life is not used, so that it is settled before it runs out."""


@dataclass(eq=False)
class Block:
    """Permits that may be used until `deadline`, by the clock of the event loop."""

    lease_id: str
    granted: int
    left: int
    begun: float
    deadline: float
    running: int = 0
    """Calls that have permits of it and have not ended."""
    is_settled: bool = False

    def has(self, cost: int) -> bool:
        """Whether a call may have so many permits of it now."""
        return self.left >= cost and asyncio.get_running_loop().time() < self.deadline

    def give(self, cost: int) -> None:
        """A call takes permits of it."""
        self.left -= cost
        self.running += 1


@dataclass(eq=False)
class _Waiter:
    cost: int
    block: asyncio.Future[Block]


class Blocks:
    """The block of one limiter, and its calls that wait for permits, in their order."""

    def __init__(self, bucket: SharedBucket, *, most: int, lease_ms: int, estimates: bool) -> None:
        """`most`: permits in one block. `lease_ms`: how long one lasts.

        `estimates`: a block is settled when its calls have ended, instead of when its permits are taken.
        """
        self._bucket = bucket
        self._most = most
        self._lease_ms = lease_ms
        self._estimates = estimates
        self._block: Block | None = None
        self._size = 1
        self._patience = Patience()
        self._waiters: deque[_Waiter] = deque()
        self._refilling: asyncio.Task[None] | None = None
        self._owed = 0
        """Permits that calls have used beyond what they took, to be taken from the next block."""

    @property
    def waiting(self) -> int:
        """How many calls wait for a block."""
        return len(self._waiters)

    @property
    def next_size(self) -> int:
        """How many permits the next block is to have."""
        return self._size

    def take(self, cost: int) -> Block | None:
        """The block, of which the call now has `cost` permits; None when it has to wait for a later one."""
        block = self._block
        if block is None or self._waiters or not block.has(cost):
            return None
        block.give(cost)
        if not block.left:
            self._used_up(block)
        return block

    async def wait(self, cost: int) -> Block:
        """Wait for a later block; the call then has `cost` permits of it.

        Raises what the client raises: `CommandRefused`, `CommandTimeout`, `CommandNotDelivered`.
        """
        loop = asyncio.get_running_loop()
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
                self.end_call(waiter.block.result(), Permit(cost, 0))
            raise

    def end_call(self, block: Block, permit: Permit) -> None:
        """A call has ended, and has used what it took, or less, or more.

        What is left serves the next calls. What is missing in a block that is settled is taken from the next one.
        """
        block.running -= 1
        if block.is_settled:
            self.owe(permit)
            return
        block.left += permit.cost - max(0, permit.used)
        if block is self._block:
            if block.left > 0 or block.running:
                return
            self._block = None
        if not block.running:
            self._settle(block)

    def owe(self, permit: Permit) -> None:
        """Take from the next block what a call has used beyond what it took."""
        self._owed += max(0, permit.used - permit.cost)

    def drop(self) -> None:
        """Take no more permits from the block, if there is one, and settle it."""
        block, self._block = self._block, None
        if block is not None and not (self._estimates and block.running):
            self._settle(block)

    async def cancel_waiting(self) -> None:
        """Calls that wait are cancelled."""
        if self._refilling is not None:
            self._refilling.cancel()
            await asyncio.gather(self._refilling, return_exceptions=True)
        for waiter in self._waiters:
            waiter.block.cancel()
        self._waiters.clear()

    def close(self) -> None:
        """Give back what is unused, and have charged what is owed; call `cancel_waiting` before."""
        if self._block is not None:
            self._settle(self._block)
            self._block = None
        if self._owed:
            self._bucket.charge(self._owed, self._lease_ms)
            self._owed = 0

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
        await self._bucket.cooled_down()
        if not self._waiters:
            return
        self.drop()
        loop = asyncio.get_running_loop()
        first, begun = self._waiters[0].cost, loop.time()
        wanted = min(sum(waiter.cost for waiter in self._waiters), self._most)
        try:
            given = await self._bucket.block(
                max(first, wanted, self._size), first, self._lease_ms, self._patience
            )
        except CommandRefused as refusal:
            if refusal.code != ErrorCode.RATE_NEVER_GRANTED:
                raise
            self._refuse_first(first, refusal)
            return
        if given is None or given.lease_id is None:
            return
        deadline = begun + ((given.valid_ms or 0) - _MARGIN * self._lease_ms) / 1000
        block = Block(given.lease_id, given.granted, given.granted - self._owed, begun, deadline)
        self._owed = 0
        self._block = block
        loop.call_at(deadline, self._out_of_time, block)
        if self._bucket.is_away:
            self.drop()
        else:
            self._serve(block)

    def _refuse_first(self, cost: int, refusal: CommandRefused) -> None:
        """What the first call costs is never granted; the others may cost less."""
        waiter = self._waiters.popleft() if self._waiters and self._waiters[0].cost == cost else None
        if waiter is not None and not waiter.block.done():
            waiter.block.set_exception(refusal)

    def _serve(self, block: Block) -> None:
        """Give a block's permits to those who wait, in their order."""
        while self._waiters and block.has(self._waiters[0].cost):
            waiter = self._waiters.popleft()
            if not waiter.block.done():
                block.give(waiter.cost)
                waiter.block.set_result(block)
        if block.left <= 0:
            self._used_up(block)

    def _used_up(self, block: Block) -> None:
        """Every permit is taken. When that was fast, the next block is larger."""
        if asyncio.get_running_loop().time() - block.begun < _TARGET_S:
            self._size = min(2 * self._size, self._most)
        if not self._estimates:
            self.drop()

    def _out_of_time(self, block: Block) -> None:
        """A block's time is over; when much of it is left, the next one is smaller."""
        if block is self._block:
            if 2 * block.left >= block.granted:
                self._size = max(1, self._size // 2)
            self._block = None
        self._settle(block)

    def _settle(self, block: Block) -> None:
        if not block.is_settled:
            block.is_settled = True
            self._bucket.settle(block.lease_id, block.granted - block.left)
