"""The demo's verdict: what makes it fail."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streams.demo.closing import Expected, problems
from streams.demo.ledger import Ledger

EXPECTED = Expected(runs=3, failing=1, broken=2, sent_twice=1)


def ledger(**changes: Any) -> Ledger:
    """The account of a demo in which all went well, with changes."""
    statuses = changes.pop("statuses", ("completed", "completed", "failed"))
    ends = {str(number): {"status": status} for number, status in enumerate(statuses)}
    right: dict[str, Any] = {"runs": 3, "dead_letters": Counter(INVALID_JSON=2), "ends": ends}
    return Ledger(**{**right, **changes})


def test_no_news_is_good_news() -> None:
    assert problems(ledger(), EXPECTED) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lost": 1}, "lost: 1"),
        ({"twice": 2}, "twice: 2"),
        ({"seq_gaps": 1}, "gaps in seq: 1"),
        ({"after_end": 1}, "events after an end: 1"),
        ({"unlike_ends": 1}, "ends unlike the last event: 1"),
        ({"refused": 1}, "commands refused: 1, not 0"),
        ({"runs": 2}, "runs submitted: 2, not 3"),
        ({"dead_letters": Counter(INVALID_JSON=2, INTERNAL_ERROR=1)}, "dead letters: 3, not 2"),
    ],
)
def test_each_thing_that_is_not_right_is_named(changes: dict[str, Any], said: str) -> None:
    assert problems(ledger(**changes), EXPECTED) == [said]


def test_a_run_that_ended_otherwise_is_named() -> None:
    found = problems(ledger(statuses=("completed", "failed", "failed")), EXPECTED)
    assert found == ["runs completed: 1, not 2", "runs failed: 2, not 1"]
