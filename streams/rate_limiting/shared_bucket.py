"""The shared bucket as a limiter asks it: patiently, and so that nothing that was granted stays with nobody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from schemas.errors import ErrorCode
from schemas.rate_commands import MAX_WAIT_MS
from schemas.rate_results import AcquireResult, RenewResult, StoredRule
from schemas.rate_rules import RateRule
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.rate_calls import RateCalls

_log = logging.getLogger(__name__)

PAUSE_S = 0.5
"""So long nothing is asked after a command that came to nothing, at most."""
_FIRST_WAIT_MS = 10_000
_CLOSE_S = 15.0
_ATTEMPTS = 3


class Patience:
    """How long the next command for the same permits waits in the bucket's queue.

    The first waits 10 s, each further one twice as long as the last: what takes many permits would lose its turn before
    they have come back.
    """

    def __init__(self) -> None:
        self._wait_ms = _FIRST_WAIT_MS

    @property
    def wait_ms(self) -> int:
        """In milliseconds."""
        return self._wait_ms

    def grow(self) -> None:
        """Nothing was granted."""
        self._wait_ms = min(2 * self._wait_ms, MAX_WAIT_MS)

    def start_again(self) -> None:
        """Permits were granted."""
        self._wait_ms = _FIRST_WAIT_MS


class SharedBucket:
    """One bucket's commands, for a limiter.

    What is awaited raises what the client raises: `CommandRefused`, `CommandTimeout`, `CommandNotDelivered`. What gives
    back (`settle`, `release`, `charge`) returns at once and works in the background; when it fails, that is logged, and
    the lease runs out by itself.
    """

    def __init__(
        self, client: RateCalls, bucket_id: str, rules: Sequence[RateRule] | None, run_id: str | None
    ) -> None:
        """`rules` None: those that are stored. `run_id`: for which run, for a fair share."""
        self._client = client
        self.bucket_id = bucket_id
        self._rules = rules
        self._run_id = run_id
        self._away_until = 0.0
        """By the clock of the event loop."""
        self._giving_back: set[asyncio.Task[None]] = set()

    @property
    def is_away(self) -> bool:
        """Whether a cooldown that was asked for here lasts."""
        return asyncio.get_running_loop().time() < self._away_until

    async def cooled_down(self) -> None:
        """Wait until no cooldown that was asked for here lasts; other tasks run at least once meanwhile."""
        await asyncio.sleep(max(0.0, self._away_until - asyncio.get_running_loop().time()))

    async def penalize(self, cooldown_s: float) -> None:
        """Let nobody have permits for `cooldown_s` seconds (more than 0); here even if the command fails."""
        self._away_until = max(self._away_until, asyncio.get_running_loop().time() + cooldown_s)
        await self._client.penalize(self.bucket_id, max(1, int(cooldown_s * 1000)), attempts=_ATTEMPTS)

    async def stored_rules(self) -> Sequence[StoredRule]:
        """The rules that are stored for the bucket."""
        return (await self._client.get_rate_rules(self.bucket_id, attempts=_ATTEMPTS)).rules

    async def block(
        self, requested: int, minimum: int, lease_ms: int, patience: Patience
    ) -> AcquireResult | None:
        """A block of permits that lasts `lease_ms`; None, after a pause, when nothing was granted."""
        return await self._ask(self._client.lease_permits, requested, minimum, lease_ms, patience)

    async def permits(self, cost: int, lease_ms: int, patience: Patience) -> AcquireResult | None:
        """Permits for one call; None, after a pause, when nothing was granted.

        They are in a lease of `lease_ms` when the rules bound concurrency.
        """
        return await self._ask(self._client.acquire_permits, cost, cost, lease_ms, patience)

    async def renew(self, lease_id: str, fencing_number: int, lease_ms: int, timeout_s: float) -> RenewResult:
        """Let a lease last `lease_ms` from now on; asked once, for `timeout_s` at most."""
        return await self._client.renew_lease(
            self.bucket_id, lease_id, fencing_number, lease_ms=lease_ms, timeout=timeout_s
        )

    def settle(self, lease_id: str, used: int) -> None:
        """End a lease of which `used` permits were used."""
        self._later(self._settle(lease_id, used))

    def release(self, lease_id: str, fencing_number: int) -> None:
        """End a lease whose permits were all used."""
        self._later(self._release(lease_id, fencing_number))

    def charge(self, owed: int, lease_ms: int) -> None:
        """Charge permits that calls have used beyond what they took, by a block of `lease_ms` that nobody uses."""
        self._later(self._charge(owed, lease_ms))

    async def close(self) -> None:
        """Wait until all is given back, for 15 s at most: what is not given back by then runs out by itself."""
        if self._giving_back:
            _, late = await asyncio.wait(self._giving_back, timeout=_CLOSE_S)
            for task in late:
                task.cancel()

    async def _ask(
        self,
        command: Callable[..., Coroutine[Any, Any, AcquireResult]],
        requested: int,
        minimum: int,
        lease_ms: int,
        patience: Patience,
    ) -> AcquireResult | None:
        """What a command of the client grants; who is cancelled meanwhile gives back what is granted all the same."""
        asking = command(
            self.bucket_id,
            self._rules,
            requested=requested,
            minimum=minimum,
            run_id=self._run_id,
            timeout_ms=patience.wait_ms,
            lease_ms=lease_ms,
            attempts=_ATTEMPTS,
        )
        task = asyncio.get_running_loop().create_task(asking)
        try:
            given = await asyncio.shield(task)
        except asyncio.CancelledError:
            self._later(self._give_back(task))
            raise
        except CommandRefused as refusal:
            if refusal.code != ErrorCode.RATE_QUEUE_FULL:
                raise
            pause_s = PAUSE_S
        else:
            if given.granted:
                patience.start_again()
                return given
            pause_s = min(PAUSE_S, given.wait_ms / 1000)
        patience.grow()
        await asyncio.sleep(pause_s)
        return None

    async def _give_back(self, asking: asyncio.Task[AcquireResult]) -> None:
        given = await asking
        if given.lease_id is not None:
            await self._settle(given.lease_id, 0)

    async def _settle(self, lease_id: str, used: int) -> None:
        await self._client.settle_permits(self.bucket_id, used, lease_id=lease_id, attempts=_ATTEMPTS)

    async def _release(self, lease_id: str, fencing_number: int) -> None:
        await self._client.release_lease(self.bucket_id, lease_id, fencing_number, attempts=_ATTEMPTS)

    async def _charge(self, owed: int, lease_ms: int) -> None:
        given = await self._client.lease_permits(
            self.bucket_id, self._rules, requested=1, lease_ms=lease_ms, attempts=_ATTEMPTS
        )
        if given.lease_id is not None:
            await self._settle(given.lease_id, owed)

    def _later(self, work: Awaitable[None]) -> None:
        async def done() -> None:
            try:
                await work
            except (CommandRefused, CommandTimeout, CommandNotDelivered) as error:
                _log.info("a lease of bucket %r was not given back: %s", self.bucket_id, error)

        task = asyncio.get_running_loop().create_task(done())
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)
