"""One run as the rules look at it: its events in order, and what else the topics say of it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from agents.run.eviction import FORGOTTEN_AFTER_MS
from schemas.topics import RUN_COMMANDS, RUN_EVENTS
from streams.verify.cut import Cut
from streams.verify.digests import NOTHING, digest
from streams.verify.entity import EntityView
from streams.verify.findings import Place
from streams.verify.rows import AnswerSeen, CommandSeen
from streams.verify.run.rows import (
    DISPATCHES,
    ENDS,
    EVENTS,
    HEADS,
    KEPT,
    TERMINALS,
    WAITS,
    DispatchSeen,
    EventSeen,
    HeadSeen,
    Kind,
    StoredEnd,
    TerminalSeen,
)
from streams.verify.run.slots import slots_of

RUNNING = digest("running")


class Misfit(NamedTuple):
    """An event whose `seq` is not the one that is due."""

    event: EventSeen
    due: int
    before: EventSeen | None
    """The event before it in the log."""


class RunView(EntityView):
    """One run."""

    def __init__(
        self,
        rows: Mapping[Any, list[Any]],
        commands: Sequence[CommandSeen],
        answers: Sequence[AnswerSeen],
        submit_type: int,
        questions: Container[int],
        cut: Cut,
    ) -> None:
        """`rows` by channel; `submit_type` and `questions` are positions among the types of commands."""
        events: list[EventSeen] = rows.get(EVENTS, [])
        heads: list[HeadSeen] = rows.get(HEADS, [])
        self.terminals: list[TerminalSeen] = rows.get(TERMINALS, [])
        self.dispatches: list[DispatchSeen] = rows.get(DISPATCHES, [])
        partition = _partition(commands, events, heads, self.terminals, self.dispatches)
        super().__init__(RUN_COMMANDS.name, commands, answers, events, questions, partition, cut)
        self.submit_type = submit_type
        self.events: list[EventSeen] = []
        """The run's events, those left out whose `seq` came before; of a run id that was used anew, the last use."""
        self.earlier: list[EventSeen] = []
        """The events of earlier uses of the run id."""
        self.misfits: list[Misfit] = []
        self.begins_unseen = False
        """Retention has removed the run's first events."""
        self._line_up(events)
        head = heads[-1] if heads else None
        self.head = head if head is not None and head.seq >= 0 else None
        self.head_place = Place("state-changelog", partition, head.offset if head is not None else 0)
        if self.head is not None and not self.head.seq and self._ended_long_ago():
            self.earlier += self.events
            self.events, self.begins_unseen = [], False
        self.forgets_all = self.head is not None and bool(self.head.evicted)
        self.kept = {change.seq: change for change in rows.get(KEPT, ())}
        self.kept = {seq: change for seq, change in self.kept.items() if change.content != NOTHING}
        """The events that the changelog keeps, by `seq`."""
        ends: list[StoredEnd] = rows.get(ENDS, [])
        self.stored_end = ends[-1] if ends and ends[-1].end != NOTHING else None
        """The terminal state that the changelog keeps."""
        waits = {wait.wait: wait for wait in rows.get(WAITS, ())}
        self.waits = {(wait.command, wait.correlation) for wait in waits.values() if wait.command != NOTHING}
        """The questions that wait, by command id and correlation id."""
        is_known = not self.forgets_all and not self.earlier
        self.slots = slots_of(self, rows, is_known=is_known)
        """What the run has beside its events; None when it has nothing."""
        self.done = self._count_done()
        """How many of `events` are up to the watermark."""

    @cached_property
    def end(self) -> EventSeen | None:
        """The terminal event, when it is there."""
        return next((event for event in self.events if event.kind == Kind.TERMINAL), None)

    @cached_property
    def submitted(self) -> EventSeen | None:
        """The event that `run.submit` made, when it is there."""
        return next((event for event in self.events if self.is_by_submit(event)), None)

    @cached_property
    def by_command(self) -> dict[int, list[EventSeen]]:
        """The events by the command that made them."""
        events: dict[int, list[EventSeen]] = {}
        for event in self.events:
            events.setdefault(event.command, []).append(event)
        return events

    @cached_property
    def _offsets(self) -> list[int]:
        """For each event an offset at or after the commands that made it and those before it."""
        offsets, reached = [], -1
        for event in self.events:
            position = self.first.get(event.command)
            if position is not None:
                reached = max(reached, self.taken[self.again.get(event.command, [position])[-1]].offset)
            offsets.append(reached)
        return offsets

    def latest_before(self, offset: int) -> int:
        """The `seq` that the run had reached, at least, when the command at an offset was processed."""
        number = bisect_left(self._offsets, offset)
        return self.events[number - 1].seq if number else 0

    @property
    def is_damaged(self) -> bool:
        """Events are missing, or there are too many."""
        latest = self.events[self.done - 1].seq if self.done else 0
        return bool(self.misfits) or (self.head is not None and self.head.seq != latest)

    def may_be_of_earlier_use(self, command: CommandSeen) -> bool:
        """Whether a command may be from before the run id was used anew: then its answer is about another run."""
        if self.cut.is_whole(RUN_EVENTS.name, self.partition):
            return bool(self.earlier)
        position = self.first.get(self.events[0].command) if self.events else None
        return bool(self.earlier) or position is None or command.offset < self.taken[position].offset

    def is_by_submit(self, event: EventSeen) -> bool:
        """Whether the event's command is a `run.submit`, and cannot be another that had the same id."""
        if event.kind != Kind.STATUS:
            return False
        position = self.first.get(event.command)
        return (
            position is not None
            and not self.may_be_repeat(self.taken[position])
            and all(
                self.taken[sent].type == self.submit_type
                for sent in (position, *self.again.get(event.command, ()))
            )
        )

    def is_late(self, command: int) -> bool:
        """Whether all commands of this id are behind the watermark."""
        position = self.first.get(command)
        return position is not None and self.taken[position].offset > self.watermark

    def time_of(self, event: EventSeen, *, latest: bool = False) -> int | None:
        """When the command that made an event was sent first, or with `latest` last; None when it is not in the log.

        A lane lives in the time of its commands. When it works off a backlog, the event is far younger.
        """
        position = self.first.get(event.command)
        if position is None:
            return None
        again = self.again.get(event.command)
        return self.taken[again[-1] if again and latest else position].timestamp

    def is_forgotten_after(self, last: EventSeen) -> bool:
        """Whether a run with this last event may be one that nobody remembers any more."""
        ended_at = self.time_of(last)
        return last.kind == Kind.TERMINAL and (
            ended_at is None or self.clock - ended_at >= FORGOTTEN_AFTER_MS
        )

    def place(self, event: EventSeen) -> Place:
        """Where an event is."""
        return Place(RUN_EVENTS.name, event.partition, event.offset)

    def _ended_long_ago(self) -> bool:
        return bool(self.events) and self.is_forgotten_after(self.events[-1])

    def _line_up(self, events: Sequence[EventSeen]) -> None:
        due, before = 1, None
        if events and events[0].seq > 1 and not self.cut.is_whole(RUN_EVENTS.name, self.partition):
            self.begins_unseen, due = True, events[0].seq
        for event in events:
            if event.seq == 1 and due > 1 and before is not None and self._is_used_anew(before, event):
                self.earlier += self.events
                self.events, self.begins_unseen, due = [], False, 1
            if event.seq != due:
                self.misfits.append(Misfit(event, due, before))
            if event.seq >= due:
                self.events.append(event)
                due = event.seq + 1
            before = event

    def _is_used_anew(self, before: EventSeen, event: EventSeen) -> bool:
        """Whether a first event may be that of a new use of the run id: the run was forgotten before."""
        if before.kind != Kind.TERMINAL:
            return False
        ended_at, begun_at = self.time_of(before), self.time_of(event, latest=True)
        return ended_at is None or begun_at is None or begun_at - ended_at >= FORGOTTEN_AFTER_MS

    def _count_done(self) -> int:
        done = len(self.events)
        latest = self.head.seq if self.head is not None else 0
        while done and self._is_behind_the_watermark(self.events[done - 1], latest):
            done -= 1
        return done

    def _is_behind_the_watermark(self, event: EventSeen, latest: int) -> bool:
        if self.is_late(event.command):
            return True
        again = self.again.get(event.command)
        return again is not None and self.taken[again[-1]].offset > self.watermark and event.seq > latest


def _partition(commands: Sequence[CommandSeen], *outputs: Sequence[Any]) -> int:
    """The run's partition: every output is in it, and a command names it."""
    for rows in outputs:
        if rows:
            return int(rows[0].partition)
    return commands[0].owner if commands else 0
