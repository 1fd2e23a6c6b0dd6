"""The rate machine: which rule decides which command, and which timer does what (DESIGN 4).

One entry per command of `rate-commands`; the rules are in the modules that the entries name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.rate import acquiring, granting, keeping, leases, peeking, turns
from agents.rate.bucket import SWEEP
from schemas import rate_commands as commands

RULES: dict[type[Any], Callable[[Request[Any], View], Decision]] = {
    commands.RateAcquire: acquiring.acquire,
    commands.RateLease: acquiring.lease,
    commands.RateRenew: leases.renew,
    commands.RateRelease: leases.release,
    commands.RateSettle: leases.settle,
    commands.RatePenalize: keeping.penalize,
    commands.RatePeek: peeking.peek,
    commands.RateRulesPut: keeping.put_rules,
    commands.RateRulesGet: keeping.get_rules,
}

TIMERS: dict[str, Callable[[FiredTimer, View], Decision]] = {
    turns.SERVE: turns.serve_timer,
    turns.TIMER: turns.time_out,
    granting.EXPIRE: leases.expire,
    SWEEP: keeping.sweep,
}
"""By the timer's name, or what stands before the colon in it."""


class RateMachine:
    """The rules of rate buckets, behind the contract `agents.machine.Machine`."""

    def decide(self, request: Request[Any], view: View) -> Decision:
        """What a command does; refusals are answers, nothing is raised for bad input."""
        return RULES[type(request.command)](request, view)

    def fire(self, timer: FiredTimer, view: View) -> Decision:
        """What a timer does; a name without a rule does nothing."""
        rule = TIMERS.get(timer.name.partition(":")[0])
        return rule(timer, view) if rule is not None else Decision()

    def recall(self, what: str, key: str, view: View) -> Any:
        """Answers about buckets are small: none holds anything by reference."""
