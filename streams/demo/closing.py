"""What the demo did, compared with what the topics say."""

from __future__ import annotations

from dataclasses import dataclass

from streams.demo.ledger import Ledger


@dataclass(frozen=True)
class Expected:
    """What the demo did, to be compared with what the topics say."""

    runs: int
    failing: int
    broken: int
    """Records that are no commands, sent on purpose."""
    sent_twice: int


def problems(ledger: Ledger, expected: Expected) -> list[str]:
    """What is not as it has to be, in words; empty when all is well."""
    found = [f"{name}: {count}" for name, count in ledger.faults.items() if count]
    wanted = {
        "runs submitted": (ledger.runs, expected.runs),
        "runs completed": (ledger.statuses["completed"], expected.runs - expected.failing),
        "runs failed": (ledger.statuses["failed"], expected.failing),
        "dead letters": (ledger.dead_letters.total(), expected.broken),
        "commands refused": (ledger.refused, 0),
    }
    return found + [f"{name}: {is_}, not {should}" for name, (is_, should) in wanted.items() if is_ != should]
