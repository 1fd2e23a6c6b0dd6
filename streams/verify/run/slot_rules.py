"""Rules about the slots of runs: what is stored, under which fencing number, and what is counted."""

from __future__ import annotations

from schemas.topics import STATE_CHANGELOG
from schemas.trace_commands import MAX_KEPT_TRACES
from streams.verify.digests import EMPTY, NOTHING
from streams.verify.findings import Place, Rule, Tally
from streams.verify.grants import FENCING
from streams.verify.run.contents import ATTEMPTS, EXPIRING, RETRY, TRACES
from streams.verify.run.slot_rows import Use
from streams.verify.run.slots import Slots, Step
from streams.verify.run.view import RunView

STORED = Rule(
    "stored",
    "What commands have stored in a run (results of children, signals, outcomes of calls, retry state, sessions, "
    "instance) is in the changelog at the watermark: the last that was accepted, until it expires or the run is "
    "evicted.",
    "what commands have stored whose answer is remembered no longer, or which retention has removed",
)
COUNT = Rule(
    "count",
    "The traces of a run, its calls and the attempts at it are counted one by one: no number is left out or comes "
    "twice, and of the traces the newest are kept.",
    "runs of which some answers are remembered no longer",
)

_UNCERTAIN = "an answer is remembered no longer, or retention has removed commands"


def check_slots(view: RunView, tally: Tally) -> None:
    """Hold the slots of a run against the rules."""
    slots = view.slots
    if slots is None or not slots.is_known:
        return
    for slot in slots.all:
        if slot != ATTEMPTS:
            _check_stored(view, slots, slot, tally)
    for slot, steps in slots.steps.items():
        if slot == RETRY:
            _check_attempts(view, slots, steps, tally)
        elif slot == TRACES:
            _check_traces_added(view, slots, steps, tally)
        elif any(step.use.use not in (Use.FILL, Use.SUBMIT) for step in steps):
            _check_fencing(view, slots, slot, tally)
    _check_numbers(view, slots, tally)


def _check_stored(view: RunView, slots: Slots, slot: int, tally: Tally) -> None:
    due, seen = slots.content_before(slot, view.watermark + 1), slots.stored.get(slot)
    if due == NOTHING:
        tally.unknown(STORED, _UNCERTAIN)
        return
    tally.checked(STORED)
    command = slots.last_filled(slot)
    see = (command,) if command is not None else ()
    if seen is None:
        if due != EMPTY and slot not in EXPIRING and command is not None:
            tally.violation(STORED, command, "what it stored is not in the changelog")
    elif seen.content != due:
        what = "no command has stored this" if due == EMPTY else "is not what the last command has stored"
        tally.violation(STORED, _state(view, seen.offset), what, *see)


def _check_fencing(view: RunView, slots: Slots, slot: int, tally: Tally) -> None:
    """The commands about one call, in their order; those whose fate nobody knows are passed over."""
    newest, published = 0, None
    for step in slots.steps[slot]:
        if not step.is_certain:
            tally.unknown(FENCING, _UNCERTAIN)
            continue
        tally.checked(FENCING)
        number = step.answer if step.use.use == Use.CLAIM else step.use.number
        if number < 0:
            continue  # A claim that got no lease.
        wrong = _wrong_number(step, number, newest, published)
        if wrong:
            see = (slots.place(published.command),) if published is not None else ()
            tally.violation(FENCING, slots.place(step.command), wrong, *see)
        newest = max(newest, number)
        if step.use.use == Use.PUBLISH and published is None:
            published = step
    call = slots.calls.get(slot)
    if call is not None and call.fencing_number < newest:
        what = f"fencing number {call.fencing_number} is stored, and {newest} was given"
        tally.violation(FENCING, _state(view, call.offset), what)


def _wrong_number(step: Step, number: int, newest: int, published: Step | None) -> str:
    use = step.use
    if use.use == Use.CLAIM:
        if published is not None:
            return f"got the call, with fencing number {number}, after its result had been published"
        if number <= newest:
            return f"got fencing number {number}, when {newest} had been given before"
    elif number < newest:
        return f"was accepted under fencing number {number}, when {newest} had been given"
    elif published is not None and (
        number != published.use.number or (use.use == Use.PUBLISH and use.content != published.use.content)
    ):
        return "was accepted after another result had been published"
    return ""


def _check_attempts(view: RunView, slots: Slots, steps: list[Step], tally: Tally) -> None:
    """Attempts are counted on, or begin again with a retry state that was stored since the last."""
    last = 0 if slots.is_whole else None
    was_stored = False
    for step in steps:
        if not step.is_certain:
            last = None
            tally.unknown(COUNT, _UNCERTAIN)
        elif step.use.use == Use.FILL:
            was_stored = True
        elif step.answer > 0:
            tally.checked(COUNT)
            begins = step.answer == 1 and was_stored
            if last is not None and step.answer != last + 1 and not begins:
                what = f"got attempt {step.answer}, where {last + 1} is due"
                tally.violation(COUNT, slots.place(step.command), what)
            last, was_stored = step.answer, False
    stored = slots.stored.get(ATTEMPTS)
    if last is not None and stored is not None:
        attempts = stored.content - 1
        if attempts != last and not (attempts == 0 and was_stored):
            what = f"{attempts} attempts are stored; the last that was given is {last}"
            tally.violation(COUNT, _state(view, stored.offset), what)


def _check_traces_added(view: RunView, slots: Slots, steps: list[Step], tally: Tally) -> None:
    done = [step for step in steps if step.command.offset <= view.watermark]
    if not slots.is_whole or not all(step.is_certain for step in done):
        tally.unknown(COUNT, _UNCERTAIN)
        return
    for number, step in enumerate(done, start=1):
        tally.checked(COUNT)
        if step.answer != min(number, MAX_KEPT_TRACES):
            what = f"is answered with count {step.answer}; it added trace {number}"
            tally.violation(COUNT, slots.place(step.command), what)
    head = view.head
    if head is not None and head.traces != len(done):
        what = f"{head.traces} traces are counted; {len(done)} were added"
        tally.violation(COUNT, view.head_place, what)


def _check_numbers(view: RunView, slots: Slots, tally: Tally) -> None:
    """Traces and calls are stored under the numbers that the run's head names."""
    head = view.head
    if head is None:
        return
    tally.checked(COUNT)
    due = set(range(max(1, head.traces - MAX_KEPT_TRACES + 1), head.traces + 1))
    if missing := due - slots.traces.keys():
        tally.violation(COUNT, view.head_place, f"trace {min(missing)} is not stored")
    for number, trace in slots.traces.items():
        if number not in due:
            what = f"trace {number} is still stored; {head.traces} were added"
            tally.violation(COUNT, _state(view, trace.offset), what)
    numbers = sorted(call.number for call in slots.calls.values())
    if numbers != list(range(1, head.calls + 1)):
        what = f"{head.calls} calls are counted, and those of the numbers {numbers[:10]} are stored"
        tally.violation(COUNT, view.head_place, what)


def _state(view: RunView, offset: int) -> Place:
    return Place(STATE_CHANGELOG.name, view.partition, offset)
