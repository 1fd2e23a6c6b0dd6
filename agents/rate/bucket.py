"""A bucket within one decision: its head and the states of its rules, as they are after what was decided so far."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from agents.machine import Decision, View
from agents.rate.tables import BUCKETS, LEASES, RENEWALS, RULES
from agents.rate.windows import kind_of
from schemas.stored import replace
from schemas.stored_rates import BucketHead, Limit, RuleState, StoredLease

MIN_WAIT_MS = 10
"""Nobody is told to ask again sooner."""

MAX_STORED_RULES = 256
"""Of one bucket. Rules that count nothing any more are forgotten."""

SWEEP = "sweep"
SWEEP_EVERY_MS = 3_600_000

StateKey = tuple[str, str, int]
LeaseKey = tuple[str, int, int]

_NUMBERS_PER_MS = 1000
_MAX_FIRST_NUMBER = 2**53


class Bucket:
    """Reads what a decision needs, and `finish`es by storing what has changed."""

    def __init__(self, key: str, view: View, now: int) -> None:
        self.key = key
        self.view = view
        self.now = now
        self.decision = Decision()
        stored = view.get(BUCKETS, key)
        self._stored = stored
        self.head = stored if stored is not None else BucketHead(next_number=_first_number(now))
        self._states: dict[StateKey, RuleState] = {}
        self._unstored: set[StateKey] = set()
        """Rules that have no stored state, and were not changed yet."""
        self._changed: set[StateKey] = set()
        self._ended: set[LeaseKey] = set()

    def update(self, **fields: Any) -> None:
        """Change fields of the head."""
        self.head = replace(self.head, **fields)

    def take_number(self) -> int:
        """A number that was never used in this bucket."""
        number = self.head.next_number
        self.head = replace(self.head, next_number=number + 1)
        return number

    def state(self, limit: Limit) -> RuleState:
        """The state of a rule as it is now."""
        # Spelled out, here and in `_put`: both are done for every rule of every command.
        at = (limit.rule_id, limit.kind, limit.window_ms)
        state = self._states.get(at)
        if state is None:
            stored = self.view.get(RULES, self.key, *at)
            if stored is None:
                state = kind_of(limit).new(limit, self.now)
                self._unstored.add(at)
            else:
                state = kind_of(limit).advance(limit, stored, self.now)
            self._states[at] = state
        return state

    def free(self, limit: Limit) -> int:
        """How many permits a rule has left; less than 0 when more was used than it allows."""
        free = self._free_of_window(limit)
        if limit.concurrency:
            return min(free, limit.concurrency - self.state(limit).held)
        return free

    def grantable(self, limits: Iterable[Limit], requested: int, minimum: int) -> int:
        """How many permits can be granted now: the smallest that a rule has left, or 0 when that is too few."""
        if self.head.cooldown_until > self.now:
            return 0
        count = requested
        for limit in limits:
            free = self.free(limit)
            if free < count:
                count = free
        return count if count >= minimum else 0

    def ready_at(self, limits: Iterable[Limit], count: int) -> tuple[int, bool]:
        """When so many permits are free, as far as time alone tells, and whether leases have to end besides.

        Every rule allows so many, see `agents.rate.acquiring`.
        """
        ready, needs_leases = max(self.now, self.head.cooldown_until), False
        for limit in limits:
            state = self.state(limit)
            if limit.window_ms and limit.permits - state.reserved < count:
                needs_leases = True
            elif (missing := count - self._free_of_window(limit)) > 0:
                ready = max(ready, kind_of(limit).returned_at(limit, state, missing, self.now))
            if limit.concurrency and limit.concurrency - state.held < count:
                needs_leases = True
        return ready, needs_leases

    def wait_ms(self, limits: Iterable[Limit], count: int) -> int:
        """When somebody who wants so many permits should ask again: the longest wait over all reasons.

        For a lease that has to end, that is when the next one expires.
        """
        ready, needs_leases = self.ready_at(limits, count)
        if needs_leases:
            ready = max(ready, next((at for (_, at, _), _ in self.leases()), 0))
        return max(MIN_WAIT_MS, ready - self.now)

    def charge(self, limits: Iterable[Limit], count: int) -> None:
        """Count permits as used, now."""
        for limit in limits:
            self._put(limit, kind_of(limit).charge(limit, self.state(limit), count, self.now))

    def refund(self, limits: Iterable[Limit], count: int, at: int) -> None:
        """Give back permits that were charged at the time `at`."""
        for limit in limits:
            self._put(limit, kind_of(limit).refund(limit, self.state(limit), count, at, self.now))

    def hold(self, limits: Iterable[Limit], count: int, *, reserve: bool) -> None:
        """Count permits into a lease, or out of it (`count` below 0); `reserve`: it is a block."""
        for limit in limits:
            state = self.state(limit)
            if reserve:
                state = replace(state, reserved=max(0, state.reserved + count))
            if limit.concurrency:
                state = replace(state, held=max(0, state.held + count))
            self._put(limit, state)

    def leases(self) -> Iterator[tuple[LeaseKey, StoredLease]]:
        """The leases that have not ended, those first that expire first."""
        for at, lease in self.view.scan(LEASES, self.key):
            if at not in self._ended:
                yield at, lease

    def end_lease(self, at: LeaseKey, lease: StoredLease, used: int | None = None) -> None:
        """Let go of a lease. `used`: how many of its permits were used, if that is known; else all of them were."""
        count = lease.permits if used is None else used
        if lease.is_block:
            self.hold(lease.limits, -lease.permits, reserve=True)
            self.charge(lease.limits, count)
        else:
            self.hold(lease.limits, -lease.permits, reserve=False)
            self.correct(lease.limits, lease.permits, count, lease.granted_at)
        self._ended.add(at)
        self.decision.delete(LEASES, at)
        if lease.first_expires_at:
            self.decision.delete(RENEWALS, (self.key, lease.first_expires_at, at[2]))
        self.update(leases=self.head.leases - 1)

    def correct(self, limits: Iterable[Limit], granted: int, used: int, at: int) -> None:
        """Charge the difference between what was granted, and charged at the time `at`, and what was used."""
        if used < granted:
            self.refund(limits, granted - used, at)
        elif used > granted:
            self.charge(limits, used - granted)

    def has_room(self, limits: Iterable[Limit]) -> bool:
        """Whether these rules, whose states were looked at, may be stored; forgets idle ones when there are many."""
        if not self._unstored:
            return True
        needed = {state_key(limit) for limit in limits}
        new = len(needed & self._unstored)
        if self.head.rules + new <= MAX_STORED_RULES:
            return True
        return self.forget_idle_rules(needed) + new <= MAX_STORED_RULES

    def forget_idle_rules(self, needed: Iterable[StateKey] = ()) -> int:
        """Delete the states that say nothing any more, but for those that are needed; returns how many are left."""
        needed, left = set(needed), self.head.rules
        for at, state in self.view.scan(RULES, self.key):
            _, *names = at
            name, kind, window_ms = names
            limit = Limit(name, kind, window_ms, state.permits)
            is_in_use = state.reserved or state.held or (name, kind, window_ms) in needed
            if not is_in_use and kind_of(limit).idle_at(limit, state) <= self.now:
                self.decision.delete(RULES, at)
                left -= 1
        self.update(rules=left)
        return left

    def finish(self) -> Decision:
        """The decision, with all that has changed."""
        for at in sorted(self._changed) if len(self._changed) > 1 else self._changed:
            self.decision.put(RULES, (self.key, *at), self._states[at])
        if self.head is not self._stored and self.head != self._stored:
            self.decision.put(BUCKETS, (self.key,), self.head)
            if self._stored is None:
                self.decision.schedule(SWEEP, self.now + SWEEP_EVERY_MS)
        return self.decision

    def _free_of_window(self, limit: Limit) -> int:
        """How many permits a rule has left, without regard to `maxConcurrency`."""
        if not limit.window_ms:
            return limit.permits
        state = self.state(limit)
        return limit.permits - kind_of(limit).used(limit, state) - state.reserved

    def _put(self, limit: Limit, state: RuleState) -> None:
        at = (limit.rule_id, limit.kind, limit.window_ms)
        if at not in self._changed:
            self._changed.add(at)
            if at in self._unstored:
                self._unstored.discard(at)
                self.head = replace(self.head, rules=self.head.rules + 1)
        if state.permits != limit.permits or state.concurrency != limit.concurrency:
            state = replace(state, permits=limit.permits, concurrency=limit.concurrency)
        self._states[at] = state


def state_key(limit: Limit) -> StateKey:
    """What names the state that a rule is counted in."""
    return limit.rule_id, limit.kind, limit.window_ms


def _first_number(now: int) -> int:
    """Greater than every number that an earlier life of the bucket has given, unless it gave a million per second."""
    return max(1, min(now * _NUMBERS_PER_MS, _MAX_FIRST_NUMBER))
