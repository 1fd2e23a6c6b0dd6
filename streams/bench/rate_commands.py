"""Commands about rate buckets, and the rules that benchmarks ask by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from schemas.rate_rules import RateRule
from streams.bench.workload import Record, command_id
from streams.rate_calls import sent_rules

RULES = [
    RateRule(rule_id="per minute", requests_per_window=10**9, window_ms=60_000),
    RateRule(rule_id="per hour", requests_per_window=10**9, window_ms=3_600_000, kind="sliding"),
]
"""A fixed and a sliding window, which never fill: every command is granted."""


def bucket_id(number: int) -> str:
    """A bucket's name."""
    return f"org-{number:05d}:provider"


@dataclass(frozen=True)
class Acquires:
    """A fixed series of `rate.acquire`, of one permit each; the buckets take turns."""

    commands: int
    buckets: int

    def records(self) -> Iterator[Record]:
        """All commands."""
        rules = sent_rules(RULES)
        for number in range(self.commands):
            bucket = bucket_id(number % self.buckets)
            command = {
                "type": "rate.acquire",
                "bucketId": bucket,
                "commandId": command_id(number),
                "rules": rules,
            }
            yield bucket.encode(), orjson.dumps(command)
