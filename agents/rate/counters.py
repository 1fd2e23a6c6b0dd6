"""One rule of a bucket within one decision: how it is called where it is stored, and what is counted for it."""

from __future__ import annotations

from agents.rate.windows import Kind, kind_of, used_of
from schemas.stored import replace
from schemas.stored_rates import Limit, RuleState
from schemas.values import Draft


def rule_name(limit: Limit) -> str:
    """What a rule's state is stored under: rules with the same id, kind and window are counted together."""
    return f"{limit.kind}:{limit.window_ms}:{limit.rule_id}"


def rule_of(name: str, state: RuleState) -> Limit:
    """The rule that a stored state counts, as the last command has named it."""
    kind, window_ms, rule_id = name.split(":", 2)
    return Limit(rule_id, kind, int(window_ms), state.permits, state.concurrency)


def count_from(name: str, limit: Limit, stored: RuleState | None, now: int) -> Counter:
    """The counter of a rule of this name, from the state that is stored on."""
    kind = kind_of(limit)
    return Counter(name, kind, kind.new(limit, now) if stored is None else kind.advance(limit, stored, now))


class Counter(Draft):
    """The state of a rule after what was decided so far. How much a rule allows is the command's: `limit`."""

    name: str
    kind: Kind
    state: RuleState
    is_changed: bool = False

    def free(self, limit: Limit) -> int:
        """How many permits the rule's window has left; less than 0 when more was used than it allows."""
        if not limit.window_ms:
            return limit.permits
        return limit.permits - used_of(self.state) - self.state.reserved

    def change(self, limit: Limit, state: RuleState) -> None:
        """Count on from `state`, which is to be stored with the numbers of `limit`."""
        if state.permits != limit.permits or state.concurrency != limit.concurrency:
            state = replace(state, permits=limit.permits, concurrency=limit.concurrency)
        self.state = state
        self.is_changed = True
