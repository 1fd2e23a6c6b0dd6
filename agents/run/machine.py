"""The run machine: which rule decides which command, and which timer does what (DESIGN 4).

One entry per command of `run-commands`; the rules are in the modules that the entries name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.run import ending, event_log, eviction, lifecycle, waits
from agents.run.refusals import TERMINAL
from agents.run.tables import TERMINALS
from schemas import run_commands as commands
from schemas.json_codec import embed

RULES: dict[type[Any], Callable[[Request[Any], View], Decision]] = {
    commands.RunSubmit: lifecycle.submit,
    commands.RunStatus: lifecycle.status,
    commands.EventsAppend: event_log.append,
    commands.EventsList: event_log.list_events,
    commands.TerminalSet: ending.set_terminal,
    commands.TerminalGet: ending.get_terminal,
    commands.RunCancel: ending.cancel,
    commands.RunFinish: eviction.finish,
}

TIMERS: dict[str, Callable[[FiredTimer, View], Decision]] = {
    waits.TIMER: waits.time_out,
    eviction.EVICT: eviction.evict,
    eviction.FORGET: eviction.forget,
}
"""By the timer's name, or what stands before the colon in it."""


class RunMachine:
    """The rules of runs, behind the contract `agents.machine.Machine`."""

    def decide(self, request: Request[Any], view: View) -> Decision:
        """What a command does; refusals are answers, nothing is raised for bad input."""
        return RULES[type(request.command)](request, view)

    def fire(self, timer: FiredTimer, view: View) -> Decision:
        """What a timer does; a name without a rule does nothing."""
        rule = TIMERS.get(timer.name.partition(":")[0])
        return rule(timer, view) if rule is not None else Decision()

    def recall(self, what: str, key: str, view: View) -> Any:
        """The run's id, or its terminal state, which is None once it is evicted; answers hold no more by reference."""
        if what == lifecycle.RUN_ID:
            return key
        if what != TERMINAL:
            raise ValueError(f"answers of runs hold no {what!r} by reference")
        stored = view.get(TERMINALS, key)
        return embed(stored) if stored is not None else None
