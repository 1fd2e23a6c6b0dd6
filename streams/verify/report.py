"""What a verification found, for people and machines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.verify.cut import Cut
from streams.verify.findings import Place, Rule, RuleCount, Tally, Violation


@dataclass(frozen=True)
class TopicRead:
    """What was read of one partition of a topic."""

    topic: str
    """Without prefix."""
    partition: int
    start: int
    """The log's first offset."""
    end: int
    """Up to where it was read, exclusive."""
    records: int
    is_settled: bool
    """False when an open transaction hid records."""


@dataclass(frozen=True)
class Report:
    """The outcome of a verification."""

    cut: Cut
    rules: Mapping[Rule, RuleCount]
    """Every rule, in the order of the pages about them."""
    commands: Mapping[str, int]
    """What became of the commands."""
    topics: Sequence[TopicRead]
    notes: Sequence[str]

    @property
    def violations(self) -> int:
        """How many violations there are, shown or not."""
        return sum(count.violations for count in self.rules.values())

    @property
    def records(self) -> int:
        """How many records were read."""
        return sum(read.records for read in self.topics)

    def as_json(self, describe: Callable[[Place], Mapping[str, str]]) -> dict[str, Any]:
        """The report for machines; `describe` tells more of a record."""
        return {
            "clean": self.violations == 0,
            "violations": [
                _violation(violation, describe) for count in self.rules.values() for violation in count.shown
            ],
            "rules": [
                {
                    "rule": rule.name,
                    "checked": count.checked,
                    "violations": count.violations,
                    "notCheckable": count.not_checkable,
                    "reasons": dict(count.unknown),
                }
                for rule, count in self.rules.items()
            ],
            "commands": {_camel(fate): number for fate, number in self.commands.items()},
            "lanes": [
                {
                    "partition": lane.partition,
                    "watermarks": lane.watermarks,
                    "clock": lane.clock,
                    "transactions": lane.transactions,
                }
                for lane in self.cut.lanes.values()
            ],
            "topics": [
                {
                    "topic": read.topic,
                    "partition": read.partition,
                    "from": read.start,
                    "to": read.end,
                    "records": read.records,
                    "settled": read.is_settled,
                }
                for read in self.topics
            ],
            "notes": list(self.notes),
        }


def report_of(tally: Tally, rules: Sequence[Rule], cut: Cut, commands: Mapping[str, int]) -> Report:
    """The report on all that was found."""
    reads = [
        TopicRead(topic, partition, found.start, found.end, found.records, found.is_settled)
        for (topic, partition), found in sorted(cut.ranges.items())
    ]
    return Report(cut, {rule: tally.of(rule) for rule in rules}, commands, reads, tally.notes)


def _violation(violation: Violation, describe: Callable[[Place], Mapping[str, str]]) -> dict[str, Any]:
    return {
        "rule": violation.rule,
        "what": violation.what,
        "place": violation.place._asdict(),
        "see": [place._asdict() for place in violation.see],
        **describe(violation.place),
    }


def _camel(name: str) -> str:
    first, *others = name.replace("-", " ").split()
    return first + "".join(word.capitalize() for word in others)
