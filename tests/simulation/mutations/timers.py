"""Mutations: when timers fire."""

from __future__ import annotations

import pytest

from streams.lane import Lane
from streams.ports import (
    StateStore,
)
from streams.timers import NEVER, DueTimer, TimerQueue
from tests.simulation.mutations.registry import mutation


@mutation
def fire_a_timer_twice(patch: pytest.MonkeyPatch) -> None:
    """A timer that is due is taken two times."""
    take, claim = TimerQueue.take_due, TimerQueue.claim

    def twice(timers: TimerQueue, now: int, limit: int) -> list[DueTimer]:
        return [timer for due in take(timers, now, limit) for timer in (due, due)]

    def always(timers: TimerQueue, timer: DueTimer) -> bool:
        claim(timers, timer)
        return True

    patch.setattr(TimerQueue, "take_due", twice)
    patch.setattr(TimerQueue, "claim", always)


@mutation
def forget_to_delete_a_fired_timer(patch: pytest.MonkeyPatch) -> None:
    """A timer that has fired stays set."""
    patch.setattr(TimerQueue, "claim", lambda timers, timer: True)


@mutation
def forget_timers_in_a_restore(patch: pytest.MonkeyPatch) -> None:
    """A lane that opens does not look for timers that were set before."""
    load = Lane._load

    def forgetful(lane: Lane, store: StateStore) -> None:
        load(lane, store)
        lane.next_due = NEVER

    patch.setattr(Lane, "_load", forgetful)
