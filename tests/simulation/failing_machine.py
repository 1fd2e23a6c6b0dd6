"""A machine with a planted bug: it raises in the middle of a decision, after some of it has been applied."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, FiredTimer, Machine, Request, View

BUG = "bug-"
"""A command whose id begins like this hits the bug."""


def hits_a_bug(command_id: str) -> bool:
    """Whether a command makes the machine fail."""
    return command_id.startswith(BUG)


class FailingMachine:
    """A real machine, but for commands that hit the bug. See `agents.machine.Machine`."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def decide(self, request: Request[Any], view: View) -> Decision:
        """See `agents.machine.Machine`."""
        decision = self._machine.decide(request, view)
        if hits_a_bug(request.command.command_id):
            decision.schedule("of-a-bug", request.now + 10)
            # The lane applies the changes and timers before it finds that this is no output.
            decision.outputs.append(("run-events", request.key, 0.5))  # type: ignore[arg-type]
        return decision

    def fire(self, timer: FiredTimer, view: View) -> Decision:
        """See `agents.machine.Machine`."""
        return self._machine.fire(timer, view)

    def recall(self, what: str, key: str, view: View) -> Any:
        """See `agents.machine.Machine`."""
        return self._machine.recall(what, key, view)
