"""The slots of one run: what commands have put there, as far as the topics tell, and what the changelog keeps."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from schemas.topics import RUN_EVENTS
from streams.verify.digests import EMPTY, NOTHING
from streams.verify.entity import EntityView
from streams.verify.findings import Place
from streams.verify.rows import CommandSeen, Remembered
from streams.verify.run.contents import EXPIRING
from streams.verify.run.slot_rows import (
    CALLS,
    OUTCOMES,
    SLOT_CHANNELS,
    SLOTS,
    TRACES,
    USES,
    CallSeen,
    SlotSeen,
    SlotUse,
    TraceSeen,
    Use,
)

_FILLING = frozenset((Use.FILL, Use.SUBMIT, Use.PUBLISH))


class Step(NamedTuple):
    """A command that may have changed a slot, in the order of the log."""

    command: CommandSeen
    use: SlotUse
    answer: int
    """The number that its answer hands out; -1 for none."""
    is_certain: bool
    """Whether it is known to have been accepted; else it may have been refused."""


class Shown(NamedTuple):
    """What a reply shows of a slot."""

    content: int = NOTHING
    """`NOTHING` for anything."""
    other: int = NOTHING
    """As right as `content`."""
    grants: int = NOTHING
    """For what it may give a fencing number."""
    is_anew: bool = False
    """The reply shows what is stored when it is given."""


ANYTHING = Shown()


class Slots:
    """What is known of the slots of one run."""

    def __init__(self, view: EntityView, rows: Mapping[Any, list[Any]], *, is_known: bool) -> None:
        """`is_known` is false of a run that was evicted or whose id was used before: then nothing is."""
        self.steps: dict[int, list[Step]] = defaultdict(list)
        """Slot -> the commands that may have changed it."""
        self.stored: dict[int, SlotSeen] = {}
        """Slot -> what the changelog keeps there. Of calls: those whose outcome it keeps."""
        self.calls: dict[int, CallSeen] = {}
        """Slot -> the call."""
        self.traces: dict[int, TraceSeen] = {}
        """Number -> the trace that the changelog keeps."""
        self.is_known = is_known
        self._view = view
        self.is_whole = view.cut.is_whole(view.topic, view.partition)
        """The log of commands has its beginning."""
        self._uses: dict[int, list[SlotUse]] = defaultdict(list)
        """Offset of a command -> what it is about."""
        self._filled: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """Slot -> (offset, content); `NOTHING` when it may have been filled."""
        if is_known:
            self._follow(rows.get(USES, ()))
            self._take_stored(rows)

    @property
    def all(self) -> Iterable[int]:
        """Every slot that a command has filled, or may have, or in which the changelog keeps something."""
        return self._filled.keys() | self.stored.keys()

    def content_before(self, slot: int, offset: int) -> int:
        """What a slot held when the command at an offset was processed: `EMPTY`, or `NOTHING` when nobody knows."""
        filled = self._filled.get(slot, ())
        number = bisect_left(filled, (offset,))
        if number:
            return filled[number - 1][1]
        return EMPTY if self.is_whole else NOTHING

    def last_filled(self, slot: int) -> Place | None:
        """The command up to the watermark that put there what a slot holds."""
        filled = self._filled.get(slot, ())
        number = bisect_left(filled, (self._view.watermark + 1,))
        return Place(self._view.topic, self._view.partition, filled[number - 1][0]) if number else None

    def place(self, command: CommandSeen) -> Place:
        """Where a command is."""
        return Place(self._view.topic, command.partition, command.offset)

    def shown_to(self, command: CommandSeen) -> Shown:
        """What the reply to a command shows."""
        for use in self._uses.get(command.offset, ()):
            content = self.content_before(use.slot, command.offset)
            if use.use == Use.CLAIM:
                return Shown(content, content, hash((use.key, use.slot)))
            if use.use == Use.SHOW or (use.use == Use.ATTEMPT and command.command not in self._view.again):
                other = EMPTY if use.slot in EXPIRING and content != NOTHING else content
                return Shown(content, other)
            if use.use == Use.AWAIT:
                other = self._next(use.slot, command.offset) if content == EMPTY else content
                return Shown(content if other != NOTHING else NOTHING, other, hash((use.key, use.slot)))
            if use.use in (Use.FILL, Use.ATTEMPT):
                return Shown(is_anew=True)
        return ANYTHING

    def _next(self, slot: int, offset: int) -> int:
        """What comes into an empty slot after an offset; `EMPTY` for nothing, `NOTHING` when nobody knows."""
        filled = self._filled.get(slot, [])
        contents = {content for _, content in filled[bisect_left(filled, (offset,)) :]}
        if not contents:
            return EMPTY
        return contents.pop() if len(contents) == 1 else NOTHING

    def _follow(self, uses: Iterable[SlotUse]) -> None:
        view = self._view
        position_at = {command.offset: position for position, command in enumerate(view.taken)}
        for use in uses:
            self._uses[use.offset].append(use)
            if use.use in (Use.SHOW, Use.AWAIT):
                continue
            position = position_at[use.offset]
            command = view.taken[position]
            first = view.first.get(command.command, position)
            comes_again = view.may_take_effect_again(command.command)
            if first != position and not comes_again:
                continue
            state = view.state_of(command.command)
            is_certain = (
                command.offset <= view.watermark
                and state != Remembered.FORGOTTEN
                and not comes_again
                and not view.may_be_repeat(command)
            )
            if is_certain and state == Remembered.REFUSED:
                continue
            self._take_step(command, use, is_certain=is_certain)

    def _take_step(self, command: CommandSeen, use: SlotUse, *, is_certain: bool) -> None:
        if use.use == Use.SUBMIT and is_certain and command.command not in self._view.has_effect:
            if self._view.cut.is_whole(RUN_EVENTS.name, self._view.partition):
                return  # The run had been submitted before.
            is_certain = False
        answer = self._view.remembered.get(command.command)
        number = answer.number if answer is not None and is_certain else -1
        self.steps[use.slot].append(Step(command, use, number, is_certain))
        if use.use in _FILLING:
            filled = self._filled[use.slot]
            if use.use == Use.PUBLISH and filled and filled[-1][1] != NOTHING:
                return  # What was published first stands.
            filled.append((command.offset, use.content if is_certain else NOTHING))

    def _take_stored(self, rows: Mapping[Any, list[Any]]) -> None:
        for stored in rows.get(SLOTS, ()):
            self.stored[stored.slot] = stored
        outcomes = {outcome.number: outcome for outcome in rows.get(OUTCOMES, ())}
        for call in rows.get(CALLS, ()):
            self.calls[call.slot] = call
        self.calls = {slot: call for slot, call in self.calls.items() if call.number}
        for slot, call in self.calls.items():
            outcome = outcomes.get(call.number)
            if call.published and outcome is not None:
                self.stored[slot] = SlotSeen(call.key, slot, outcome.content, outcome.offset)
        self.stored = {slot: seen for slot, seen in self.stored.items() if seen.content != NOTHING}
        self.traces = {trace.number: trace for trace in rows.get(TRACES, ())}
        self.traces = {number: trace for number, trace in self.traces.items() if trace.is_there}


def slots_of(view: EntityView, rows: Mapping[Any, list[Any]], *, is_known: bool) -> Slots | None:
    """The slots of a run; None when no command and no record is about any, as of most runs."""
    if not any(channel in rows for channel in SLOT_CHANNELS):
        return None
    return Slots(view, rows, is_known=is_known)
