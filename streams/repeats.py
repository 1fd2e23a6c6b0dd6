"""Command ids that come again: the first answer, and nothing else (spec wire 1, "Repeats").

Per key, the answers of the newest commands are kept. `lane.window` counts them; `lane.answer` holds one each.
Old answers are dropped in bulk, so that a command costs the same however many are kept.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from agents.families import Family
from agents.machine import Answer
from schemas.envelope import Envelope
from schemas.stored import Remembered, RepeatWindow
from streams.lane_tables import ANSWERS, WINDOWS
from streams.overlay import Overlay
from streams.timers import DueTimer, TimerQueue

_TIMER_FAMILY = "repeats:"
_TIMER_NAME = "expire"
_PRUNE_EVERY = 1000
"""A prune looks at all that is kept of a key: the rarer, the less for each command, and the more is kept."""


class _Numbered(msgspec.Struct):
    """All that is decoded of an answer to tell whether it is old."""

    number: int


_NUMBER = msgspec.json.Decoder(_Numbered)


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
        self._counted: dict[tuple[str, str], int] = {}
        """(family, key) -> number of the last command, where the batch has remembered one."""

    def recall(self, family: Family, envelope: Envelope, now: int) -> Answer | None:
        """The first answer to a command id that is still remembered, else None."""
        overlay, name, key = self._overlay, family.name, envelope.key
        latest = self._latest(name, key)
        if latest == 0:
            return None
        known = overlay.get(ANSWERS, name, key, envelope.command_id)
        if known is None or now - known.at >= self._limits.repeat_ms:
            return None
        if latest - known.number >= self._limits.repeat_limit:
            return None
        body: dict[str, Any] = dict(known.body)
        for field, what in known.by_reference.items():
            body[field] = family.machine.recall(what, key, overlay)
        return Answer(known.ok, body)

    def remember(self, family: Family, key: str, command_id: str, answer: Answer, now: int) -> None:
        """Keep the answer to a command; what an answer holds by reference is not copied.

        The last step of a command: it is not undone.
        """
        name = family.name
        number = self._latest(name, key) + 1
        if number == 1:
            self._timers.schedule(_TIMER_FAMILY + name, key, _TIMER_NAME, now + self._limits.repeat_ms)
        body, by_reference = answer.body, answer.by_reference
        if by_reference:
            body = {field: value for field, value in body.items() if field not in by_reference}
        remembered = Remembered(number, now, answer.ok, body, by_reference)
        self._overlay.put(ANSWERS, (name, key, command_id), remembered)
        if number % _PRUNE_EVERY == 0:
            self._drop_older(name, key, number - self._limits.repeat_limit)
        self._counted[name, key] = number

    def flush(self) -> None:
        """Put the numbers that were counted into the overlay."""
        for at, number in self._counted.items():
            self._overlay.put(WINDOWS, at, RepeatWindow(number))
        self._counted.clear()

    def expire(self, timer: DueTimer, now: int) -> None:
        """The key's timer: drop what is too old, and come again for the rest."""
        name = timer.family.removeprefix(_TIMER_FAMILY)
        oldest = self._drop_expired(name, timer.key, now - self._limits.repeat_ms)
        if oldest is None:
            self._drop_window(name, timer.key)
        else:
            self._timers.schedule(timer.family, timer.key, timer.name, oldest + self._limits.repeat_ms)

    def forget(self, family: Family, key: str) -> None:
        """Drop all that is remembered of a key. Nothing of it is undone, so nothing that follows may fail."""
        for parts, _ in list(self._overlay.scan(ANSWERS, family.name, key)):
            self._overlay.put(ANSWERS, parts, None)
        self._drop_window(family.name, key)
        self._timers.cancel(_TIMER_FAMILY + family.name, key, _TIMER_NAME)

    def _latest(self, family: str, key: str) -> int:
        """Number of the last command that was remembered of a key; 0 when none is."""
        counted = self._counted.get((family, key))
        if counted is not None:
            return counted
        window = self._overlay.get(WINDOWS, family, key)
        return window.latest if window is not None else 0

    def _drop_window(self, family: str, key: str) -> None:
        self._counted.pop((family, key), None)
        self._overlay.put(WINDOWS, (family, key), None)

    def _drop_older(self, family: str, key: str, up_to: int) -> None:
        """Drop the stored answers numbered `up_to` or lower; those of the present batch are the next time's."""
        overlay = self._overlay
        for at, data in list(overlay.stored(ANSWERS, family, key)):
            # An id that was forgotten and came again has a newer answer here than in the store.
            if _NUMBER.decode(data).number <= up_to and not overlay.is_changed(
                ANSWERS, parts := ANSWERS.parts(at)
            ):
                overlay.put(ANSWERS, parts, None)

    def _drop_expired(self, family: str, key: str, before: int) -> int | None:
        """Drop answers that are not newer than `before`; returns when the oldest kept was made."""
        oldest: int | None = None
        for parts, answer in list(self._overlay.scan(ANSWERS, family, key)):
            if answer.at <= before:
                self._overlay.put(ANSWERS, parts, None)
            elif oldest is None or answer.at < oldest:
                oldest = answer.at
        return oldest
