"""Rules about runs: their events, ends and dispatches, and the state that lanes keep of them."""

from __future__ import annotations

from agents.run.results import first_kept
from schemas.topics import RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS, STATE_CHANGELOG
from streams.verify.digests import TIMER
from streams.verify.findings import Place, Rule, Tally
from streams.verify.run.rows import EventSeen, Kind, TerminalSeen
from streams.verify.run.view import RUNNING, RunView

SEQ = Rule(
    "seq",
    "The events of a run are numbered 1, 2, 3 ... by their `seq`, without gaps and repeats.",
    "beginnings that retention has removed",
)
AFTER_END = Rule("after-end", "No event of a run follows its terminal event.")
ORDER = Rule(
    "order",
    "The events of a run are in the order of the commands that made them.",
    "events whose command may have come before the beginning of the log",
)
TWICE = Rule(
    "twice",
    "One command id has one effect in a run, as long as it is remembered.",
    "second effects of ids whose first command retention has removed",
)
TERMINAL = Rule(
    "terminal",
    "A run's terminal state on `run-terminals` is that of its terminal event; neither is without the other.",
    "ends of which retention has removed the event",
)
DISPATCH = Rule(
    "dispatch",
    "A run that was submitted was dispatched once, by the same command.",
    "submits of which retention has removed the event or the dispatch",
)
STATE = Rule(
    "state",
    "What the changelog keeps of a run at the watermark, its latest `seq`, its status, its newest events and its end, "
    "is what the events say.",
    "events that retention has removed",
)

RULES = (SEQ, AFTER_END, ORDER, TWICE, TERMINAL, DISPATCH, STATE)

_CLOCK_SLACK_MS = 60_000
_RETENTION = "retention has removed the beginning of the log"


def check_events(view: RunView, tally: Tally) -> None:
    """The rules about the events alone, and about the commands that made them."""
    events = view.events
    tally.checked(SEQ, len(events) + len(view.earlier))
    if view.begins_unseen:
        tally.unknown(SEQ, _RETENTION)
    for misfit in view.misfits:
        see = (view.place(misfit.before),) if misfit.before is not None else ()
        what = f"`seq` is {misfit.event.seq} where {misfit.due} is due"
        tally.violation(SEQ, view.place(misfit.event), what, *see)
    end = view.end
    if end is not None:
        tally.checked(AFTER_END)
        for event in events:
            if event.seq > end.seq:
                tally.violation(
                    AFTER_END, view.place(event), f"follows the terminal event {end.seq}", view.place(end)
                )
    _check_effects(view, tally)


def _check_effects(view: RunView, tally: Tally) -> None:
    """Each command had its effect once, and in its turn."""
    tally.checked(TWICE, len(view.events))
    tally.checked(ORDER, len(view.events))
    first = view.first
    seen: dict[int, EventSeen] = {}
    reached, latest = -1, None
    for event in view.events:
        earlier = seen.setdefault(event.command, event)
        if event.command == TIMER:
            continue
        if earlier is not event:
            _check_again(view, tally, earlier, event)
            continue
        position = first.get(event.command, reached)
        if position < reached and event.command not in view.again:
            if not view.may_be_repeat(view.taken[position]):
                what = f"its command is before that of event {latest.seq if latest else 0}"
                see = (view.place(latest),) if latest is not None else ()
                tally.violation(ORDER, view.place(event), what, *see)
            else:
                tally.unknown(ORDER, _RETENTION)
        elif position > reached and event.command not in view.again:
            reached, latest = position, event


def _check_again(view: RunView, tally: Tally, earlier: EventSeen, event: EventSeen) -> None:
    """A second event of a command id is right when the id had been forgotten before it came again."""
    command_at = view.time_of(event)
    if not view.cut.is_whole(view.topic, view.partition) and (
        command_at is None or earlier.timestamp <= command_at
    ):
        tally.unknown(TWICE, _RETENTION)
    elif command_at is None or not view.may_take_effect_again(event.command):
        what = f"the command of event {earlier.seq} has made event {event.seq} too"
        tally.violation(TWICE, view.place(event), what, view.place(earlier))


def check_terminal(view: RunView, tally: Tally) -> None:
    """Terminal event and terminal state are alike, and neither is alone."""
    end = view.end
    if end is not None and end.seq <= (view.events[view.done - 1].seq if view.done else 0):
        tally.checked(TERMINAL)
        if not any(terminal.command == end.command for terminal in view.terminals):
            found = view.cut.ranges[RUN_TERMINALS.name, view.partition]
            if found.first_timestamp is not None and _is_gone(
                end.timestamp, found.start, found.first_timestamp
            ):
                tally.unknown(TERMINAL, _RETENTION)
            else:
                tally.violation(
                    TERMINAL, view.place(end), "the run's terminal state is not on `run-terminals`"
                )
    ends = [event for event in (*view.earlier, *view.events) if event.kind == Kind.TERMINAL]
    seen: list[int] = []
    for terminal in view.terminals:
        if view.is_late(terminal.command):
            continue
        tally.checked(TERMINAL)
        place = Place(RUN_TERMINALS.name, terminal.partition, terminal.offset)
        of_command = [event for event in ends if event.command == terminal.command]
        if not of_command:
            _check_other_terminal(view, tally, terminal, place)
        elif all(event.end != terminal.end for event in of_command):
            last = of_command[-1]
            tally.violation(TERMINAL, place, f"differs from event {last.seq}", view.place(last))
        else:
            seen.append(terminal.command)
            if seen.count(terminal.command) > len(of_command):
                tally.violation(TERMINAL, place, "is a second terminal state of the run")


def _check_other_terminal(view: RunView, tally: Tally, terminal: TerminalSeen, place: Place) -> None:
    """A terminal state by another command than that of the run's terminal event."""
    is_before = not view.events or terminal.timestamp <= view.events[0].timestamp
    if is_before and not view.cut.is_whole(RUN_EVENTS.name, view.partition):
        tally.unknown(TERMINAL, _RETENTION)
    elif not _is_missing(view, terminal.seq):
        tally.violation(TERMINAL, place, f"the run has no such terminal event {terminal.seq}")


def _is_missing(view: RunView, seq: int) -> bool:
    """Whether an event is missing that other rules report: one in a gap, or behind the last that is there."""
    latest = view.events[-1].seq if view.events else 0
    in_state = view.head.seq if view.head is not None else 0
    return seq < latest or latest < seq <= in_state


def check_dispatch(view: RunView, tally: Tally) -> None:
    """Each submit that counted has one dispatch, and each dispatch its submit."""
    due = {event.command: event for event in view.events[: view.done] if view.is_by_submit(event)}
    found: dict[int, Place] = {}
    topic = view.cut.ranges[RUN_DISPATCH.name, view.partition]
    events = view.cut.ranges[RUN_EVENTS.name, view.partition]
    for dispatch in view.dispatches:
        place = Place(RUN_DISPATCH.name, dispatch.partition, dispatch.offset)
        tally.checked(DISPATCH)
        if dispatch.command in found:
            tally.violation(DISPATCH, place, "is a second dispatch of the run", found[dispatch.command])
        elif dispatch.command not in due and dispatch.command in view.first:
            is_known = (
                view.is_late(dispatch.command) or dispatch.command in view.has_effect or view.is_damaged
            )
            if not is_known:
                if _is_gone(dispatch.timestamp, events.start, events.first_timestamp):
                    tally.unknown(DISPATCH, _RETENTION)
                else:
                    tally.violation(DISPATCH, place, "its command has submitted nothing")
        found.setdefault(dispatch.command, place)
    for command, event in due.items():
        if command not in found:
            tally.checked(DISPATCH)
            if _is_gone(event.timestamp, topic.start, topic.first_timestamp):
                tally.unknown(DISPATCH, _RETENTION)
            else:
                tally.violation(DISPATCH, view.place(event), "the run was submitted and not dispatched")


def _is_gone(timestamp: int, start: int, first_timestamp: int | None) -> bool:
    """Whether retention may have removed what was written to a log at a time."""
    return start > 0 and (first_timestamp is None or timestamp < first_timestamp + _CLOCK_SLACK_MS)


def check_state(view: RunView, tally: Tally) -> None:
    """The changelog's fold at the watermark is what the events say."""
    done = view.events[: view.done]
    head, is_whole = view.head, view.cut.is_whole(RUN_EVENTS.name, view.partition)
    if head is None and not done and not view.kept and view.stored_end is None:
        return
    tally.checked(STATE)
    place = view.head_place
    last = done[-1] if done else None
    if head is None:
        if last is not None and not view.is_forgotten_after(last):
            what = f"nothing is stored of a run with {len(done)} events"
            tally.violation(STATE, view.place(last), what, place)
        elif view.kept or view.stored_end is not None:
            left = next(iter(view.kept.values())).offset if view.kept else view.stored_end.offset  # type: ignore[union-attr]
            tally.violation(STATE, place._replace(offset=left), "is left of a run of which nothing is stored")
        return
    if last is None and head.seq and not is_whole:
        tally.unknown(STATE, _RETENTION)
        return
    if head.seq != (last.seq if last is not None else 0):
        see = (view.place(last),) if last is not None else ()
        what = f"the run's latest event is {head.seq} here, and {last.seq if last else 0} on `run-events`"
        tally.violation(STATE, place, what, *see)
        return
    _check_status(view, tally, last)
    _check_kept(view, tally, head.seq)


def _check_status(view: RunView, tally: Tally, last: EventSeen | None) -> None:
    head = view.head
    assert head is not None
    if last is None:
        return
    is_end = last.kind == Kind.TERMINAL
    if bool(head.ended) != is_end:
        text = "has ended" if head.ended else "has not ended"
        tally.violation(
            STATE, view.head_place, f"the run {text} here, unlike by its events", view.place(last)
        )
    elif head.status != (last.status if is_end else RUNNING):
        tally.violation(
            STATE, view.head_place, "the run's status is not that of its events", view.place(last)
        )
    stored = view.stored_end
    if is_end and not head.evicted and stored is None:
        tally.violation(STATE, view.head_place, "the run's terminal state is not stored", view.place(last))
    elif stored is not None and (not is_end or stored.end != last.end):
        place = Place(STATE_CHANGELOG.name, view.partition, stored.offset)
        tally.violation(
            STATE, place, "the terminal state is not that of the terminal event", view.place(last)
        )


def _check_kept(view: RunView, tally: Tally, latest: int) -> None:
    """The newest events are stored, byte for byte, and no others; once the run is evicted, what is left of them."""
    kept, is_evicted = view.kept, view.head is not None and bool(view.head.evicted)
    due = range(first_kept(latest), latest + 1) if latest else range(0)
    by_seq = {event.seq: event for event in view.events[: view.done]}
    for seq in due:
        stored, event = kept.get(seq), by_seq.get(seq)
        if stored is None:
            if is_evicted:
                continue
            see = (view.place(event),) if event is not None else ()
            tally.violation(STATE, view.head_place, f"event {seq} is not stored", *see)
        elif event is not None and event.content != stored.content:
            place = Place(STATE_CHANGELOG.name, view.partition, stored.offset)
            what = f"event {seq} is stored otherwise than on `run-events`"
            tally.violation(STATE, place, what, view.place(event))
        elif event is None and view.begins_unseen and seq < view.events[0].seq:
            tally.unknown(STATE, "stored events that retention has removed from `run-events`")
    for seq, stored in kept.items():
        if seq not in due:
            place = Place(STATE_CHANGELOG.name, view.partition, stored.offset)
            tally.violation(STATE, place, f"event {seq} is still stored; the latest is {latest}")
