"""Timers as state: keyed, ordered by due time, changed in the same transaction as everything else (DESIGN 4)."""

from __future__ import annotations

from typing import Any, NamedTuple

from schemas.stored import Timer, TimerDue
from streams.lane_tables import TIMERS, TIMERS_DUE
from streams.overlay import Overlay

NEVER = 2**63 - 1


class DueTimer(NamedTuple):
    """A timer that is due."""

    due: int
    family: str
    key: str
    name: str
    payload: Any


class TimerQueue:
    """The timers of one lane, on the overlay of one batch."""

    def __init__(self, overlay: Overlay, not_before: int) -> None:
        """`not_before` is a time before which no timer is due; it spares looking."""
        self._overlay = overlay
        self.next_due = not_before
        """No timer is due before this time."""

    def schedule(self, family: str, key: str, name: str, due: int, payload: Any = None) -> None:
        """Set a timer, instead of an earlier one of the same name."""
        due = max(0, due)
        self.cancel(family, key, name)
        self._overlay.put(TIMERS, (due, family, key, name), Timer(payload=payload))
        self._overlay.put(TIMERS_DUE, (family, key, name), TimerDue(due=due))
        self.next_due = min(self.next_due, due)

    def cancel(self, family: str, key: str, name: str) -> None:
        """Remove a timer; one that is not set is fine."""
        found = self._overlay.get(TIMERS_DUE, family, key, name)
        if found is not None:
            self._overlay.put(TIMERS, (found.due, family, key, name), None)
            self._overlay.put(TIMERS_DUE, (family, key, name), None)

    def take_due(self, now: int, limit: int) -> list[DueTimer]:
        """The timers that are due by `now`, earliest first, at most `limit`. They stay set until `claim`."""
        if now < self.next_due:
            return []
        found: list[DueTimer] = []
        for (due, family, key, name), timer in self._overlay.scan(TIMERS, start=(self.next_due,)):
            if due > now or len(found) == limit:
                self.next_due = found[0].due if found else due
                return found
            found.append(DueTimer(due, family, key, name, timer.payload))
        self.next_due = found[0].due if found else NEVER
        return found

    def claim(self, timer: DueTimer) -> bool:
        """Remove a timer that was taken; False when an earlier one of the same round has changed it."""
        found = self._overlay.get(TIMERS_DUE, timer.family, timer.key, timer.name)
        if found is None or found.due != timer.due:
            return False
        self.cancel(timer.family, timer.key, timer.name)
        return True
