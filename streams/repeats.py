"""Command ids that come again: the first answer, and nothing else (spec wire 1, "Repeats").

Per key, the answers of the newest commands are kept. `lane.window` counts them; `lane.answer` holds one each.
Old answers are dropped in bulk, so that a command costs the same however many are kept.
"""

from __future__ import annotations

from typing import Any, Protocol

from agents.families import Family
from agents.machine import Answer
from schemas.envelope import Envelope
from schemas.stored import Remembered, RepeatWindow
from streams.lane_tables import ANSWERS, WINDOWS
from streams.overlay import Overlay
from streams.timers import DueTimer, TimerQueue

_TIMER_FAMILY = "repeats:"
_TIMER_NAME = "expire"
_PRUNE_EVERY = 500


class RepeatLimits(Protocol):
    """How long a command id is remembered."""

    @property
    def repeat_limit(self) -> int:
        """Until so many newer ones came for its key."""

    @property
    def repeat_ms(self) -> int:
        """Until so much time passed."""


class Repeats:
    """What one batch of a lane remembers and recalls."""

    def __init__(self, overlay: Overlay, timers: TimerQueue, limits: RepeatLimits) -> None:
        self._overlay = overlay
        self._timers = timers
        self._limits = limits

    def recall(self, family: Family, envelope: Envelope, now: int) -> Answer | None:
        """The first answer to a command id that is still remembered, else None."""
        overlay, name, key = self._overlay, family.name, envelope.key
        window = overlay.get(WINDOWS, name, key)
        if window is None:
            return None
        known = overlay.get(ANSWERS, name, key, envelope.command_id)
        if known is None or now - known.at >= self._limits.repeat_ms:
            return None
        if window.latest - known.number >= self._limits.repeat_limit:
            return None
        body: dict[str, Any] = dict(known.body)
        for field, what in known.by_reference.items():
            body[field] = family.machine.recall(what, key, overlay)
        return Answer(known.ok, body)

    def remember(self, family: Family, envelope: Envelope, answer: Answer, now: int) -> None:
        """Keep the answer to a command; what an answer holds by reference is not copied."""
        overlay, name, key = self._overlay, family.name, envelope.key
        window = overlay.get(WINDOWS, name, key)
        if window is None:
            self._timers.schedule(_TIMER_FAMILY + name, key, _TIMER_NAME, now + self._limits.repeat_ms)
            number = 1
        else:
            number = window.latest + 1
        overlay.put(WINDOWS, (name, key), RepeatWindow(number))
        body, by_reference = answer.body, answer.by_reference
        if by_reference:
            body = {field: value for field, value in body.items() if field not in by_reference}
        overlay.put(
            ANSWERS, (name, key, envelope.command_id), Remembered(number, now, answer.ok, body, by_reference)
        )
        if number % _PRUNE_EVERY == 0:
            limits = self._limits
            self._prune(name, key, number - limits.repeat_limit, now - limits.repeat_ms)

    def expire(self, timer: DueTimer, now: int) -> None:
        """The key's timer: drop what is too old, and come again for the rest."""
        name = timer.family.removeprefix(_TIMER_FAMILY)
        oldest = self._prune(name, timer.key, 0, now - self._limits.repeat_ms)
        if oldest is None:
            self._overlay.put(WINDOWS, (name, timer.key), None)
        else:
            self._timers.schedule(timer.family, timer.key, timer.name, oldest + self._limits.repeat_ms)

    def forget(self, family: Family, key: str) -> None:
        """Drop all that is remembered of a key."""
        for parts, _ in list(self._overlay.scan(ANSWERS, family.name, key)):
            self._overlay.put(ANSWERS, parts, None)
        self._overlay.put(WINDOWS, (family.name, key), None)
        self._timers.cancel(_TIMER_FAMILY + family.name, key, _TIMER_NAME)

    def _prune(self, family: str, key: str, up_to: int, before: int) -> int | None:
        """Drop answers numbered `up_to` or lower, or not newer than `before`; returns when the oldest kept was made."""
        oldest: int | None = None
        for parts, answer in list(self._overlay.scan(ANSWERS, family, key)):
            if answer.number <= up_to or answer.at <= before:
                self._overlay.put(ANSWERS, parts, None)
            elif oldest is None or answer.at < oldest:
                oldest = answer.at
        return oldest
