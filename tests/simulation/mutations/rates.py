"""Mutations of the rate machine, which the sequential lane shares: only what always holds for buckets tells of them."""

from __future__ import annotations

import pytest

from agents.machine import Decision, FiredTimer, View
from agents.rate import leases
from agents.rate.bucket import Bucket, LeaseKey
from agents.rate.counters import count_from
from agents.rate.granting import EXPIRE
from agents.rate.machine import TIMERS
from agents.rate.tables import GRANTS
from agents.rate.windows import SlidingWindow
from schemas.stored_rates import Limit, RuleState, StoredLease
from tests.simulation.mutations.registry import mutation


@mutation
def charge_what_was_read_before_others_were_granted(patch: pytest.MonkeyPatch) -> None:
    """Read, then set: of several grants in one go, each is counted onto what was used before all of them."""
    charge = Bucket.charge

    def careless(bucket: Bucket, limits: tuple[Limit, ...], count: int) -> None:
        for limit, counter in bucket.counters(limits):
            stored = bucket.head.rules.get(counter.name)
            counter.state = count_from(counter.name, limit, stored, bucket.now).state
        charge(bucket, limits, count)

    patch.setattr(Bucket, "charge", careless)


@mutation
def grant_blocks_without_reserving_them(patch: pytest.MonkeyPatch) -> None:
    """The permits of a block count when it is settled, and not while it lasts."""
    hold = Bucket.hold

    def careless(bucket: Bucket, limits: tuple[Limit, ...], count: int, *, reserve: bool) -> None:
        hold(bucket, limits, count, reserve=False)

    patch.setattr(Bucket, "hold", careless)


@mutation
def take_the_permits_of_a_lost_block_for_unused(patch: pytest.MonkeyPatch) -> None:
    """A block that runs out gives all of its permits back."""
    expire, end_lease = leases.expire, Bucket.end_lease

    def careless(timer: FiredTimer, view: View) -> Decision:
        def end(bucket: Bucket, at: LeaseKey, lease: StoredLease, used: int | None = None) -> None:
            end_lease(bucket, at, lease, 0 if lease.is_block else used)

        with pytest.MonkeyPatch.context() as within:
            within.setattr(Bucket, "end_lease", end)
            return expire(timer, view)

    patch.setitem(TIMERS, EXPIRE, careless)


@mutation
def forget_that_leases_expire(patch: pytest.MonkeyPatch) -> None:
    """The timer that ends leases does nothing."""
    patch.setitem(TIMERS, EXPIRE, lambda timer, view: Decision())


@mutation
def end_all_leases_when_the_first_expires(patch: pytest.MonkeyPatch) -> None:
    """The timer that ends leases does not look at when each of them expires."""
    expire = leases.expire

    def careless(timer: FiredTimer, view: View) -> Decision:
        return expire(FiredTimer(timer.key, timer.name, timer.now + 3_600_000, timer.payload), view)

    patch.setitem(TIMERS, EXPIRE, careless)


@mutation
def settle_a_grant_again_and_again(patch: pytest.MonkeyPatch) -> None:
    """A grant without a lease that was settled gives its unused permits back each time."""
    delete = Decision.delete

    def careless(decision: Decision, table: object, key: tuple[object, ...]) -> None:
        if table is not GRANTS:
            delete(decision, table, key)  # type: ignore[arg-type]

    patch.setattr(Decision, "delete", careless)


@mutation
def let_permits_come_back_a_slot_too_early(patch: pytest.MonkeyPatch) -> None:
    """A sliding window forgets the slot that its span still touches."""
    advance = SlidingWindow.advance

    def careless(kind: SlidingWindow, limit: Limit, state: RuleState, now: int) -> RuleState:
        return advance(kind, limit, state, now + max(1, limit.window_ms // 16))

    patch.setattr(SlidingWindow, "advance", careless)
