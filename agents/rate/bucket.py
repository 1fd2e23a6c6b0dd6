"""A bucket within one decision: its head and its rules, as they are after what was decided so far."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from agents.machine import Decision, View
from agents.rate.counters import Counter, count_from, rule_name, rule_of
from agents.rate.tables import BUCKETS, LEASES, RENEWALS
from agents.rate.windows import kind_of
from schemas.stored import replace
from schemas.stored_rates import BucketHead, Limit, StoredLease

MIN_WAIT_MS = 10
"""Nobody is told to ask again sooner."""

MAX_STORED_RULES = 256
"""Of one bucket. Rules that count nothing any more are forgotten."""

SWEEP = "sweep"
SWEEP_EVERY_MS = 3_600_000

LeaseKey = tuple[str, int, int]
Limits = tuple[Limit, ...]

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
        """Its `rules` are the stored ones until the end."""
        self._counters: dict[str, Counter] = {}
        """By the rule's name."""
        self._limits: Limits = ()
        self._counted: list[tuple[Limit, Counter]] = []
        """The counters of `_limits`, for one decision asks for the same rules again and again."""
        self._ended: set[LeaseKey] = set()

    def update(self, **fields: Any) -> None:
        """Change fields of the head."""
        self.head = replace(self.head, **fields)

    def take_number(self) -> int:
        """A number that was never used in this bucket."""
        number = self.head.next_number
        self.head = replace(self.head, next_number=number + 1)
        return number

    def counters(self, limits: Limits) -> list[tuple[Limit, Counter]]:
        """Each rule with its counter."""
        if limits is not self._limits:
            known, stored, now = self._counters, self.head.rules, self.now
            counted = []
            for limit in limits:
                name = rule_name(limit)
                counter = known.get(name)
                if counter is None:
                    counter = known[name] = count_from(name, limit, stored.get(name), now)
                counted.append((limit, counter))
            self._limits, self._counted = limits, counted
        return self._counted

    def grantable(self, limits: Limits, requested: int, minimum: int) -> int:
        """How many permits can be granted now: the smallest that a rule has left, or 0 when that is too few."""
        if self.head.cooldown_until > self.now:
            return 0
        count = requested
        for limit, counter in self.counters(limits):
            free = counter.free(limit)
            if free < count:
                count = free
            if limit.concurrency:
                count = min(count, limit.concurrency - counter.state.held)
        return count if count >= minimum else 0

    def ready_at(self, limits: Limits, count: int) -> tuple[int, bool]:
        """When so many permits are free, as far as time alone tells, and whether leases have to end besides.

        Every rule allows so many, see `agents.rate.acquiring`.
        """
        ready, needs_leases = max(self.now, self.head.cooldown_until), False
        for limit, counter in self.counters(limits):
            state = counter.state
            if limit.window_ms and limit.permits - state.reserved < count:
                needs_leases = True
            elif (missing := count - counter.free(limit)) > 0:
                ready = max(ready, counter.kind.returned_at(limit, state, missing, self.now))
            if limit.concurrency and limit.concurrency - state.held < count:
                needs_leases = True
        return ready, needs_leases

    def wait_ms(self, limits: Limits, count: int) -> int:
        """When somebody who wants so many permits should ask again: the longest wait over all reasons.

        For a lease that has to end, that is when the next one expires.
        """
        ready, needs_leases = self.ready_at(limits, count)
        if needs_leases:
            ready = max(ready, next((at for (_, at, _), _ in self.leases()), 0))
        return max(MIN_WAIT_MS, ready - self.now)

    def charge(self, limits: Limits, count: int) -> None:
        """Count permits as used, now."""
        now = self.now
        for limit, counter in self.counters(limits):
            counter.change(limit, counter.kind.charge(limit, counter.state, count, now))

    def refund(self, limits: Limits, count: int, at: int) -> None:
        """Give back permits that were charged at the time `at`."""
        for limit, counter in self.counters(limits):
            counter.change(limit, counter.kind.refund(limit, counter.state, count, at, self.now))

    def hold(self, limits: Limits, count: int, *, reserve: bool) -> None:
        """Count permits into a lease, or out of it (`count` below 0); `reserve`: it is a block."""
        for limit, counter in self.counters(limits):
            state = counter.state
            if reserve:
                state = replace(state, reserved=max(0, state.reserved + count))
            if limit.concurrency:
                state = replace(state, held=max(0, state.held + count))
            counter.change(limit, state)

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

    def correct(self, limits: Limits, granted: int, used: int, at: int) -> None:
        """Charge the difference between what was granted, and charged at the time `at`, and what was used."""
        if used < granted:
            self.refund(limits, granted - used, at)
        elif used > granted:
            self.charge(limits, used - granted)

    def has_room(self, limits: Limits) -> bool:
        """Whether these rules may be stored; forgets idle ones when there are many."""
        if len(self.head.rules) + len(self._counters) + len(limits) <= MAX_STORED_RULES:
            return True
        needed = {counter.name for _, counter in self.counters(limits)}
        needed |= {counter.name for counter in self._counters.values() if counter.is_changed}
        if len(self.head.rules.keys() | needed) <= MAX_STORED_RULES:
            return True
        self.forget_idle_rules(needed)
        return len(self.head.rules.keys() | needed) <= MAX_STORED_RULES

    def forget_idle_rules(self, needed: Collection[str] = ()) -> None:
        """Forget the stored states that say nothing any more, but for those of the rules that are needed."""
        kept = {}
        for name, state in self.head.rules.items():
            limit = rule_of(name, state)
            is_in_use = state.reserved or state.held or name in needed
            if is_in_use or kind_of(limit).idle_at(limit, state) > self.now:
                kept[name] = state
        if len(kept) < len(self.head.rules):
            self.update(rules=kept)

    def finish(self) -> Decision:
        """The decision, with all that has changed."""
        changed = {counter.name: counter.state for counter in self._counters.values() if counter.is_changed}
        if changed:
            self.update(rules={**self.head.rules, **changed})
        if self.head is not self._stored:
            self.decision.put(BUCKETS, (self.key,), self.head)
            if self._stored is None:
                self.decision.schedule(SWEEP, self.now + SWEEP_EVERY_MS)
        return self.decision


def _first_number(now: int) -> int:
    """Greater than every number that an earlier life of the bucket has given, unless it gave a million per second."""
    return max(1, min(now * _NUMBERS_PER_MS, _MAX_FIRST_NUMBER))
