"""What `runlane verify` says of the topics when a torture is over."""

from __future__ import annotations

from collections.abc import Iterator

from streams.settings import Settings
from streams.verify.cut import RepeatLimits
from streams.verify.kafka_source import KafkaSource
from streams.verify.report import Report
from streams.verify.verifier import Verifier


def verify(settings: Settings) -> Report:
    """Hold all topics against all rules (blocking). Raises `UserError` when they cannot be read."""
    source = KafkaSource(settings, settings.partitions)
    try:
        limits = RepeatLimits(settings.repeat_window_commands, settings.repeat_window_ms)
        return Verifier(source, limits).run()
    finally:
        source.close()


def broken_rules(report: Report) -> Iterator[str]:
    """The violations in words: of each rule the first ones, and how many more there are."""
    for rule, count in report.rules.items():
        for violation in count.shown:
            yield f"runlane verify: {violation}"
        if more := count.violations - len(count.shown):
            yield f"runlane verify: {rule.name}: {more:,} more violations"
