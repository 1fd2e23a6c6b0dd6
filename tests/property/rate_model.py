"""What a rate bucket has to do, in the plainest way: lists of what was granted, looked at millisecond by millisecond.

It knows the definitions of the kinds of rules and of the turns, and nothing of how they are stored. Beside it,
`over_granted` looks at the grants alone, and says whether calls can have exceeded a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any

SLOTS = 32

StateKey = tuple[str, str, int]


@dataclass(frozen=True)
class Rule:
    """A rule."""

    rule_id: str
    kind: str
    window_ms: int
    permits: int
    concurrency: int = 0

    @property
    def key(self) -> StateKey:
        """Rules that are counted together have the same."""
        return self.rule_id, self.kind, self.window_ms

    def as_sent(self) -> dict[str, Any]:
        """The rule as clients send it."""
        return {
            "ruleId": self.rule_id,
            "kind": self.kind,
            "windowMs": self.window_ms,
            "requestsPerWindow": self.permits,
            "maxConcurrency": self.concurrency or None,
        }


@dataclass
class Charge:
    """Permits that were used, or may have been, at a time."""

    at: int
    count: int


@dataclass
class Counted:
    """What is counted for a rule."""

    start: int
    charges: list[Charge] = field(default_factory=list)
    reserved: int = 0
    held: int = 0
    missing: Fraction = Fraction(0)
    missing_at: int = 0

    def used(self, rule: Rule, now: int) -> int:
        """Permits that count at a time, without those in blocks."""
        window = rule.window_ms
        if rule.kind == "bucket":
            return ceil(self.missing_tokens(rule, now))
        if rule.kind == "sliding":
            slot = ceil(Fraction(window, SLOTS))
            counts = (now - window + 1) // slot
            return sum(charge.count for charge in self.charges if charge.at // slot >= counts)
        begin = self.start + (now - self.start) // window * window
        return sum(charge.count for charge in self.charges if charge.at >= begin)

    def missing_tokens(self, rule: Rule, now: int) -> Fraction:
        """Tokens that are missing from the full bucket."""
        refilled = Fraction((now - self.missing_at) * rule.permits, rule.window_ms)
        return max(Fraction(0), self.missing - refilled)

    def charge(self, rule: Rule, count: int, now: int) -> None:
        """Permits were used."""
        self.charges.append(Charge(now, count))
        if rule.window_ms:
            self.missing = self.missing_tokens(rule, now) + count
            self.missing_at = now

    def refund(self, rule: Rule, count: int, at: int, now: int) -> None:
        """Permits that were charged at a time were not used."""
        for charge in self.charges:
            if charge.at == at:
                back = min(charge.count, count)
                charge.count, count = charge.count - back, count - back
                if rule.kind == "bucket" and rule.window_ms:
                    useful = back - Fraction((now - at) * rule.permits, rule.window_ms)
                    self.missing = max(Fraction(0), self.missing_tokens(rule, now) - max(0, useful))
                    self.missing_at = now


@dataclass
class Grant:
    """Permits that somebody has or had."""

    count: int
    at: int
    rules: list[Rule]
    is_block: bool
    expires_at: int = 0
    """0: there is no lease."""
    ended_at: int | None = None
    used: int | None = None
    """As it was settled; None: all."""


@dataclass
class Wait:
    """A command that waits."""

    command_id: str
    run: str
    number: int
    asked_at: int
    due: int
    rules: list[Rule]
    requested: int
    minimum: int
    lease_ms: int
    is_block: bool

    @property
    def cost(self) -> int:
        """What it costs its run."""
        return min([self.requested, *(rule.permits for rule in self.rules)])


class Bucket:
    """One bucket."""

    def __init__(self) -> None:
        self.counted: dict[StateKey, Counted] = {}
        self.cooldown_until = 0
        self.grants: list[Grant] = []
        self.by_command: dict[str, Grant] = {}
        self.waits: list[Wait] = []
        self.turns: dict[str, tuple[int, int]] = {}
        """Run -> tag and number of its turn."""
        self.served = 0
        """Tag of the turn that was served last."""
        self.numbers = 0
        self.late: list[tuple[str, int]] = []
        """Command id and number of permits of what was answered late."""
        self.lost = 0
        self.violations: list[str] = []
        """How calls may have exceeded a rule."""

    def free(self, rule: Rule, now: int) -> int:
        """How many permits a rule has left."""
        counted = self.counted.get(rule.key) or Counted(now, missing_at=now)
        free = rule.permits
        if rule.window_ms:
            free -= counted.used(rule, now) + counted.reserved
        return min(free, rule.concurrency - counted.held) if rule.concurrency else free

    def grantable(self, rules: list[Rule], requested: int, minimum: int, now: int) -> int:
        """How many permits can be granted at a time."""
        if now < self.cooldown_until:
            return 0
        count = min([requested, *(self.free(rule, now) for rule in rules)])
        return count if count >= minimum else 0

    def ask(self, wish: Wait, timeout_ms: int) -> int | None:
        """What is granted; None when it waits."""
        now = wish.asked_at
        count = self.grantable(wish.rules, wish.requested, wish.minimum, now)
        if count and not self.waits:
            self.grant(wish, count, now)
            return count
        if not timeout_ms:
            return 0
        wish.due = now + timeout_ms
        self.numbers += 1
        wish.number = self.numbers
        if wish.run not in self.turns:
            self.turns[wish.run] = (self.served + wish.cost, wish.number)
        self.waits.append(wish)
        self.serve(now)
        return None

    def grant(self, wish: Wait, count: int, now: int) -> None:
        """Give permits."""
        has_lease = wish.is_block or any(rule.concurrency for rule in wish.rules)
        expires_at = now + wish.lease_ms if has_lease else 0
        grant = Grant(count, now, wish.rules, wish.is_block, expires_at)
        self.grants.append(grant)
        self.by_command[wish.command_id] = grant
        for rule in wish.rules:
            counted = self.counted.setdefault(rule.key, Counted(now, missing_at=now))
            if wish.is_block:
                counted.reserved += count
            else:
                counted.charge(rule, count, now)
            if rule.concurrency:
                counted.held += count
        self.violations += filter(None, [self.over_granted(grant)])

    def end(self, grant: Grant, used: int | None, now: int) -> None:
        """A grant is released, settled (`used`) or expires."""
        grant.ended_at, grant.used = now, used
        used = grant.count if used is None else used
        for rule in grant.rules:
            counted = self.counted[rule.key]
            if grant.expires_at and rule.concurrency:
                counted.held -= grant.count
            if grant.is_block:
                counted.reserved -= grant.count
                counted.charge(rule, used, now)
            elif used > grant.count:
                counted.charge(rule, used - grant.count, now)
            else:
                counted.refund(rule, grant.count - used, grant.at, now)
        self.serve(now)

    def first(self, run: str) -> Wait:
        """The command of a run that has waited longest."""
        return next(wait for wait in self.waits if wait.run == run)

    def serve(self, now: int) -> None:
        """Serve the smallest tag, and of equal ones the turn that began first, until that cannot be."""
        while self.waits:
            run = min(self.turns, key=lambda run: self.turns[run])
            wait = self.first(run)
            count = self.grantable(wait.rules, wait.requested, wait.minimum, now)
            if not count:
                return
            self.grant(wait, count, now)
            self.late.append((wait.command_id, count))
            self.served = self.turns[run][0]
            self.leave(wait)
            if run in self.turns:
                self.numbers += 1
                self.turns[run] = (self.served + self.first(run).cost, self.numbers)
        self.served = 0

    def leave(self, wait: Wait) -> None:
        """A command waits no longer."""
        self.waits.remove(wait)
        if all(other.run != wait.run for other in self.waits):
            del self.turns[wait.run]

    def time_out(self, wait: Wait, now: int) -> None:
        """A command's time to wait is over."""
        was_first = self.first(wait.run) is wait
        self.late.append((wait.command_id, 0))
        self.leave(wait)
        if was_first and wait.run in self.turns:
            tag, number = self.turns[wait.run]
            self.turns[wait.run] = (tag - wait.cost + self.first(wait.run).cost, number)
        self.serve(now)

    def tick(self, now: int) -> None:
        """What happens by itself at a time."""
        ended = [grant for grant in self.grants if grant.expires_at == now and now and grant.ended_at is None]
        for grant in ended:
            grant.ended_at = now
            self.lost += grant.count if grant.is_block else 0
            for rule in grant.rules:
                counted = self.counted[rule.key]
                counted.held -= grant.count if rule.concurrency else 0
                if grant.is_block:
                    counted.reserved -= grant.count
                    counted.charge(rule, grant.count, now)
        self.serve(now)
        for wait in [wait for wait in self.waits if wait.due == now]:
            if wait in self.waits:
                self.time_out(wait, now)

    def over_granted(self, grant: Grant) -> str:
        """How calls may have exceeded a rule when a grant was made; empty when they cannot have.

        The calls of a block are made whenever in its life that is worst.
        """
        now = grant.at
        for rule in grant.rules:
            same = [other for other in self.grants if rule.key in {each.key for each in other.rules}]
            held = [other for other in same if other.expires_at and other.ended_at is None]
            if rule.concurrency and sum(other.count for other in held) > rule.concurrency:
                return f"concurrency of {rule}"
            if not rule.window_ms:
                continue
            if rule.kind == "window":
                start = self.counted[rule.key].start
                begins = {start + (now - start) // rule.window_ms * rule.window_ms}
            elif rule.kind == "sliding":
                begins = {now - rule.window_ms + 1}
            else:
                begins = {last_call(other, now) for other in same}
            for begin in begins:
                calls = sum(calls_of(other) for other in same if last_call(other, now) >= begin)
                most = Fraction(rule.permits)
                if rule.kind == "bucket":
                    most += Fraction((now - begin) * rule.permits, rule.window_ms)
                if calls > most:
                    return f"{calls} calls since {begin} at {now} by {rule}"
        return ""


def last_call(grant: Grant, now: int) -> int:
    """When the last call under a grant can have been made."""
    if not grant.is_block:
        return grant.at
    return now if grant.ended_at is None else grant.ended_at


def calls_of(grant: Grant) -> int:
    """How many calls can have been made under a grant; what was settled beyond it was not for the bucket to refuse."""
    return grant.count if grant.used is None else min(grant.used, grant.count)
