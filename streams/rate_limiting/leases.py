"""A lease for each call, where rules bound concurrency: renewed while the call lasts, ended with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.rate_limiting.known_rules import KnownRules
from streams.rate_limiting.permits import Permit
from streams.rate_limiting.shared_bucket import PAUSE_S, Patience, SharedBucket

_log = logging.getLogger(__name__)

_RENEWALS_PER_LEASE = 3


@dataclass(frozen=True)
class Lease:
    """The lease of one call."""

    lease_id: str
    fencing_number: int


class CallLeases:
    """The leases of the calls of one limiter."""

    def __init__(self, bucket: SharedBucket, rules: KnownRules, lease_ms: int) -> None:
        """`lease_ms`: how long a lease lasts that nobody renews. `rules` forget when permits came without a lease."""
        self._bucket = bucket
        self._rules = rules
        self._lease_ms = lease_ms
        self._leasing: set[asyncio.Task[Lease | None]] = set()

    @property
    def waiting(self) -> int:
        """How many calls wait for a lease."""
        return len(self._leasing)

    async def lease(self, cost: int) -> Lease | None:
        """Wait for a lease of `cost` permits; None: permits without one, for the rules bound concurrency no more.

        Raises what the client raises: `CommandRefused`, `CommandTimeout`, `CommandNotDelivered`.
        """
        leasing = asyncio.get_running_loop().create_task(self._lease(cost))
        self._leasing.add(leasing)
        leasing.add_done_callback(self._leasing.discard)
        try:
            return await leasing
        except asyncio.CancelledError:
            if leasing.done() and not leasing.cancelled() and not leasing.exception():
                # The lease came at the last moment: the call is not made.
                lease = leasing.result()
                if lease is not None:
                    self._bucket.settle(lease.lease_id, 0)
            raise

    def keep(self, lease: Lease, permit: Permit) -> Callable[[], None]:
        """Renew the lease of a call from now on; returns what ends both, for when the call has ended."""
        renewing = asyncio.get_running_loop().create_task(self._renew(lease, permit))

        def end() -> None:
            renewing.cancel()
            if permit.used == permit.cost:
                self._bucket.release(lease.lease_id, lease.fencing_number)
            else:
                self._bucket.settle(lease.lease_id, permit.used)

        return end

    async def close(self) -> None:
        """Calls that wait are cancelled; those that have leases keep them."""
        for task in self._leasing:
            task.cancel()
        await asyncio.gather(*self._leasing, return_exceptions=True)

    async def _lease(self, cost: int) -> Lease | None:
        patience = Patience()
        while True:
            await self._bucket.cooled_down()
            given = await self._bucket.permits(cost, self._lease_ms, patience)
            if given is None:
                continue
            if given.lease_id is None or given.fencing_number is None:
                self._rules.forget()
                return None
            return Lease(given.lease_id, given.fencing_number)

    async def _renew(self, lease: Lease, permit: Permit) -> None:
        pause_s = renewal_s = self._lease_ms / 1000 / _RENEWALS_PER_LEASE
        while True:
            await asyncio.sleep(pause_s)
            try:
                renewal = await self._bucket.renew(
                    lease.lease_id, lease.fencing_number, self._lease_ms, max(1.0, renewal_s)
                )
            except (CommandRefused, CommandTimeout, CommandNotDelivered) as error:
                _log.warning("a lease of bucket %r was not renewed: %s", self._bucket.bucket_id, error)
                pause_s = min(PAUSE_S, renewal_s)
                continue
            if not renewal.renewed:
                permit.is_lost = True
                _log.warning("a lease of bucket %r has ended before its call", self._bucket.bucket_id)
                return
            pause_s = renewal_s
