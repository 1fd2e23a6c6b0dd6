"""What rules find: violations with the place to look at, and what could not be checked, with the reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where a record is."""

    topic: str
    """Without prefix."""
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Rule(NamedTuple):
    """Something that has to hold in every deployment."""

    name: str
    """Stable: programs may decide by it."""
    about: str
    """What has to hold, in one sentence."""
    not_checkable: str = ""
    """When nobody can tell; empty when that does not happen."""


class Violation(NamedTuple):
    """One way in which the topics break a rule."""

    rule: str
    place: Place
    """The record to look at."""
    what: str
    """What is wrong with it."""
    see: tuple[Place, ...] = ()
    """Records that it contradicts."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.place}: {self.what}"


@dataclass
class RuleCount:
    """How a rule fared."""

    checked: int = 0
    violations: int = 0
    unknown: Counter[str] = field(default_factory=Counter)
    """Reason -> how many could not be checked for it."""
    shown: list[Violation] = field(default_factory=list)
    """The first violations; there may be more."""

    @property
    def not_checkable(self) -> int:
        """How many could not be checked."""
        return self.unknown.total()


class Tally:
    """Collects what rules find. Of each rule the first violations are kept, the others only counted."""

    def __init__(self, shown_per_rule: int = 20) -> None:
        self._shown_per_rule = shown_per_rule
        self.counts: dict[str, RuleCount] = {}
        """By the rule's name."""
        self.notes: list[str] = []
        """What the reader of the report has to know besides."""

    @property
    def violations(self) -> int:
        """All violations of all rules."""
        return sum(count.violations for count in self.counts.values())

    def of(self, rule: Rule) -> RuleCount:
        """The counts of a rule."""
        count = self.counts.get(rule.name)
        if count is None:
            count = self.counts[rule.name] = RuleCount()
        return count

    def checked(self, rule: Rule, number: int = 1) -> None:
        """So many things were held against a rule."""
        self.of(rule).checked += number

    def violation(self, rule: Rule, place: Place, what: str, *see: Place) -> None:
        """A rule is broken."""
        count = self.of(rule)
        count.violations += 1
        if len(count.shown) < self._shown_per_rule:
            count.shown.append(Violation(rule.name, place, what, see))

    def unknown(self, rule: Rule, reason: str, number: int = 1) -> None:
        """So many things could not be held against a rule."""
        if number:
            self.of(rule).unknown[reason] += number

    def note(self, text: str) -> None:
        """Say something once in the report."""
        if text not in self.notes:
            self.notes.append(text)
