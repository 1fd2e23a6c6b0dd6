"""How runs are verified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.families import FAMILIES
from agents.run import tables
from agents.tables import Table
from schemas.run_commands import EventsAppend, RunCancel, RunSubmit, TerminalSet
from schemas.topics import RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS
from streams.verify.cut import Cut
from streams.verify.digests import NOTHING
from streams.verify.family import Made, Reply, Rows, VerifiedFamily
from streams.verify.findings import Tally
from streams.verify.reading import ReadChange, ReadCommand, Reading, ReadRecords
from streams.verify.rows import CommandSeen, Says
from streams.verify.run import contents, rules, slot_rules
from streams.verify.run.asking import SERVED
from streams.verify.run.readers import output_reader, table_readers
from streams.verify.run.rows import (
    DISPATCHES,
    ENDS,
    EVENTS,
    HEADS,
    KEPT,
    TERMINALS,
    WAITS,
    EventSeen,
    Kind,
)
from streams.verify.run.slot_rows import SLOT_CHANNELS
from streams.verify.run.slot_tables import slot_readers
from streams.verify.run.slot_uses import use_readers
from streams.verify.run.view import RunView

_FAMILY = next(family for family in FAMILIES if family.name == "run")


class RunFamily(VerifiedFamily[RunView]):
    """The family of `run-commands`."""

    output_topics = (RUN_EVENTS.name, RUN_TERMINALS.name, RUN_DISPATCH.name)
    state_tables = tuple(table for table in vars(tables).values() if isinstance(table, Table))
    rules = (*rules.RULES, slot_rules.STORED, slot_rules.COUNT, SERVED)

    def __init__(self) -> None:
        super().__init__(_FAMILY, EVENTS, TERMINALS, DISPATCHES, HEADS, KEPT, ENDS, WAITS, *SLOT_CHANNELS)
        types = {model: number for number, model in enumerate(_FAMILY.commands.models)}
        self._submit, self._append = types[RunSubmit], types[EventsAppend]
        self._ending = {types[TerminalSet], types[RunCancel]}

    def outputs(self, topic: str, partition: int, reading: Reading) -> ReadRecords:
        """See `VerifiedFamily`."""
        return output_reader(topic, partition, reading)

    def tables(self, partition: int, reading: Reading) -> Mapping[str, ReadChange]:
        """See `VerifiedFamily`."""
        return {**table_readers(partition, reading), **slot_readers(partition, reading)}

    def commands_read(self, reading: Reading) -> Mapping[str, ReadCommand]:
        """See `VerifiedFamily`."""
        return use_readers(self.family.commands, reading)

    def content_of(self, result: Mapping[str, Any]) -> int:
        """See `VerifiedFamily`."""
        return contents.content_of(result)

    def view(self, rows: Rows, cut: Cut) -> RunView:
        """See `VerifiedFamily`."""
        commands, answers = rows.get(self.commands, []), rows.get(self.answers, [])
        return RunView(rows, commands, answers, self._submit, self.questions, cut)

    def made(self, view: RunView) -> Mapping[str, Sequence[Made]]:
        """See `VerifiedFamily`."""
        return {
            RUN_EVENTS.name: [*view.earlier, *view.events],
            RUN_TERMINALS.name: view.terminals,
            RUN_DISPATCH.name: view.dispatches,
        }

    def check(self, view: RunView, tally: Tally) -> None:
        """See `VerifiedFamily`."""
        rules.check_events(view, tally)
        rules.check_terminal(view, tally)
        rules.check_dispatch(view, tally)
        rules.check_state(view, tally)
        slot_rules.check_slots(view, tally)

    def reply(self, view: RunView, command: CommandSeen) -> Reply:
        """See `VerifiedFamily`."""
        reply, slots = self._reply(view, command), view.slots
        if slots is None or not slots.is_known:
            return reply
        shown = slots.shown_to(command)
        says = reply.says | Says.ANEW if shown.is_anew else reply.says
        return reply._replace(says=says, content=shown.content, other=shown.other, grants=shown.grants)

    def _reply(self, view: RunView, command: CommandSeen) -> Reply:
        either = Says.YES | Says.NO
        if (command.command, command.correlation) in view.waits:
            return Reply(either | Says.LATER)
        if view.is_damaged or view.may_be_of_earlier_use(command):
            return Reply(either)
        end = view.end.end if view.end is not None else NOTHING
        if command.type in self.questions:
            return Reply(either, end=end, least=view.latest_before(command.offset))
        events = view.by_command.get(command.command, ())
        if len(events) == 1:
            return self._applied(view, command, events[0])
        if events or view.begins_unseen:
            return Reply(either, end=end)
        if command.type == self._append:
            return Reply(Says.NO, end=end)
        if command.type == self._submit:
            submitted = view.submitted
            return Reply(either if submitted else Says.NO, submitted.seq if submitted else -1, end=end)
        if command.type in self._ending:
            return Reply(either if view.end else Says.NO, end=end)
        return Reply(either, end=end)

    def _applied(self, view: RunView, command: CommandSeen, event: EventSeen) -> Reply:
        """The reply to a command that made an event."""
        if event.kind == Kind.TERMINAL:
            return Reply(Says.YES, end=event.end)
        # Retention may have removed a submit of the same id, of which this command is a repeat.
        may_be_submit = event.kind == Kind.STATUS and view.may_be_repeat(command)
        is_timed = command.type == self._append and not may_be_submit
        return Reply(Says.YES, event.seq, event.ts if is_timed else NOTHING)
