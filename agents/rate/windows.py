"""The kinds of rules: what is counted for each, when a permit comes back, and what bounds the calls (spec wire 7).

All of it is integer arithmetic on milliseconds and whole permits. A rule's state is the triple of what was *used*
(permits that were charged and still count), what is *reserved* (permits in blocks that have not ended) and what is
*held* (permits in leases, for `maxConcurrency`). For every kind, `permits - used - reserved` are free.

A block's permits are reserved from its grant to its end and charged at its end. Take any window of a rule and the
last grant whose permits were used in it: at that moment all other permits that are used in the window were either
reserved or had been charged within it. They were counted together, so they do not exceed the rule, although nobody
knows when within a block's life its permits are used.
"""

from __future__ import annotations

from typing import Protocol

from schemas.stored import replace
from schemas.stored_rates import Limit, RuleState

DAY_MS = 86_400_000

SLOTS = 32
"""Into so many slots the window of a `sliding` rule is divided."""

MOST_USED = 2**60
"""More is not counted; it is out of reach of any limit, and fits into a stored number."""


class Kind(Protocol):
    """How one kind of rule counts. Every `state` has been advanced to `now`."""

    def new(self, limit: Limit, now: int) -> RuleState:
        """The state of a rule that nobody has used."""

    def advance(self, limit: Limit, state: RuleState, now: int) -> RuleState:
        """The state as it is at `now`, which is never before the last change."""

    def charge(self, limit: Limit, state: RuleState, count: int, now: int) -> RuleState:
        """The state after permits were used."""

    def refund(self, limit: Limit, state: RuleState, count: int, at: int, now: int) -> RuleState:
        """The state after permits that were charged at the time `at` turned out not to be used.

        What has come back by itself is not given back again: no state is better than if they had not been charged.
        """

    def returned_at(self, limit: Limit, state: RuleState, count: int, now: int) -> int:
        """When at least so many of the used permits have come back; `count` is 1 or more, and not more than `used`."""

    def idle_at(self, limit: Limit, state: RuleState) -> int:
        """From when on the state may be forgotten, when nothing is reserved or held."""


class FixedWindow:
    """`window`: a window starts at its first use, and moves on by whole windows; its count starts at 0.

    Source: the coordinator's first system (spec coordinator 7). At most `permits` calls in each window; two
    neighbouring windows may have theirs close together, so up to twice as many in a span that touches both.

    State: `start` of the present window, and what was `used` in it. A window that nobody used for a day is forgotten.
    """

    def new(self, limit: Limit, now: int) -> RuleState:
        return RuleState(permits=limit.permits, start=now)

    def advance(self, limit: Limit, state: RuleState, now: int) -> RuleState:
        elapsed = now - state.start
        if elapsed < limit.window_ms:
            return state
        return replace(state, start=now - elapsed % limit.window_ms, used=0)

    def charge(self, limit: Limit, state: RuleState, count: int, now: int) -> RuleState:
        return replace(state, used=min(state.used + count, MOST_USED))

    def refund(self, limit: Limit, state: RuleState, count: int, at: int, now: int) -> RuleState:
        return replace(state, used=max(0, state.used - count)) if at >= state.start else state

    def returned_at(self, limit: Limit, state: RuleState, count: int, now: int) -> int:
        return state.start + limit.window_ms

    def idle_at(self, limit: Limit, state: RuleState) -> int:
        return state.start + limit.window_ms + DAY_MS


class SlidingWindow:
    """`sliding`: at most `permits` calls in every span of `window_ms` milliseconds, wherever it begins.

    Source: the sliding window of counters (as Figma describes it, with sixtieths of the window), here with the
    slots rounded to the safe side instead of weighted. Time is cut into slots of ceil(window / 32) ms, counted from
    the epoch. A permit counts as long as the span of `window_ms` that ends now touches the slot it was charged in: so
    never for shorter than the window, and at most one slot (a 32nd of the window, or 1 ms) longer. Windows of up to
    32 ms are exact.

    State: `slots` has what was charged by slot, the first being number `start`; `used` is their sum.
    """

    def new(self, limit: Limit, now: int) -> RuleState:
        return RuleState(permits=limit.permits)

    def advance(self, limit: Limit, state: RuleState, now: int) -> RuleState:
        gone = (now - limit.window_ms + 1) // _slot_ms(limit) - state.start
        if gone <= 0 or not state.slots:
            return state
        slots = state.slots[gone:]
        return replace(state, start=state.start + gone, slots=slots, used=sum(slots))

    def charge(self, limit: Limit, state: RuleState, count: int, now: int) -> RuleState:
        at = now // _slot_ms(limit)
        start = state.start if state.slots else at
        slots = list(state.slots) + [0] * (at - start + 1 - len(state.slots))
        count = min(count, MOST_USED - state.used)
        slots[at - start] += count
        return replace(state, start=start, slots=tuple(slots), used=state.used + count)

    def refund(self, limit: Limit, state: RuleState, count: int, at: int, now: int) -> RuleState:
        index = at // _slot_ms(limit) - state.start
        if not 0 <= index < len(state.slots):
            return state
        slots = list(state.slots)
        count = min(count, slots[index])
        slots[index] -= count
        return replace(state, slots=tuple(slots), used=state.used - count)

    def returned_at(self, limit: Limit, state: RuleState, count: int, now: int) -> int:
        last = state.start
        for slot, charged in enumerate(state.slots, state.start):
            if count <= 0:
                break
            if charged:
                count, last = count - charged, slot
        return (last + 1) * _slot_ms(limit) + limit.window_ms - 1

    def idle_at(self, limit: Limit, state: RuleState) -> int:
        return self.returned_at(limit, state, state.used, 0) if state.used else 0


class TokenBucket:
    """`bucket`: a bucket of `permits` tokens, full at first, refilled evenly with `permits` tokens per window.

    Source: the token bucket, as the generic cell rate algorithm of ITU-T I.371 states it and `redis-cell` uses it. In
    any span of t ms there are at most `permits + t * permits / window_ms` calls: a burst, and the rate.

    State: the tokens that are missing from the full bucket at time `start` are `used + rest / window_ms`. A refund
    gives back what the tokens' absence can still matter: what has been refilled since the charge stays away, for a
    full bucket would not have been refilled.
    """

    def new(self, limit: Limit, now: int) -> RuleState:
        return RuleState(permits=limit.permits, start=now)

    def advance(self, limit: Limit, state: RuleState, now: int) -> RuleState:
        missing = _missing(limit, state) - (now - state.start) * limit.permits
        return _with_missing(limit, replace(state, start=now), missing)

    def charge(self, limit: Limit, state: RuleState, count: int, now: int) -> RuleState:
        return replace(state, used=min(state.used + count, MOST_USED))

    def refund(self, limit: Limit, state: RuleState, count: int, at: int, now: int) -> RuleState:
        given_back = count * limit.window_ms - (now - at) * limit.permits
        return _with_missing(limit, state, _missing(limit, state) - max(0, given_back))

    def returned_at(self, limit: Limit, state: RuleState, count: int, now: int) -> int:
        left = (used_of(state) - count) * limit.window_ms
        return now - (left - _missing(limit, state)) // max(1, limit.permits)

    def idle_at(self, limit: Limit, state: RuleState) -> int:
        return state.start - -_missing(limit, state) // limit.permits


class NeverFull:
    """A rule whose window has no length: nothing is counted but leases."""

    def new(self, limit: Limit, now: int) -> RuleState:
        return RuleState(permits=limit.permits)

    def advance(self, limit: Limit, state: RuleState, now: int) -> RuleState:
        return state

    def charge(self, limit: Limit, state: RuleState, count: int, now: int) -> RuleState:
        return state

    def refund(self, limit: Limit, state: RuleState, count: int, at: int, now: int) -> RuleState:
        return state

    def returned_at(self, limit: Limit, state: RuleState, count: int, now: int) -> int:
        return now

    def idle_at(self, limit: Limit, state: RuleState) -> int:
        return 0


_KINDS: dict[str, Kind] = {"window": FixedWindow(), "sliding": SlidingWindow(), "bucket": TokenBucket()}
_NEVER_FULL: Kind = NeverFull()


def used_of(state: RuleState) -> int:
    """Whole permits that count, without those in blocks; a started token counts as one."""
    return state.used + (state.rest > 0)


def kind_of(limit: Limit) -> Kind:
    """How a rule counts."""
    return _KINDS[limit.kind] if limit.window_ms else _NEVER_FULL


def _slot_ms(limit: Limit) -> int:
    return -(-limit.window_ms // SLOTS)


def _missing(limit: Limit, state: RuleState) -> int:
    """In tokens times `window_ms`, so that it is a whole number."""
    return state.used * limit.window_ms + state.rest


def _with_missing(limit: Limit, state: RuleState, missing: int) -> RuleState:
    used, rest = divmod(max(0, missing), limit.window_ms)
    return replace(state, used=used, rest=rest)
