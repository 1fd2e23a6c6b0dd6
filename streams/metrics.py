"""Prometheus metrics of a worker, served at `/metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.batch import BatchCounts
from streams.rate_metrics import RateMetrics

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_SIZES = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000)


class Metrics:
    """The metrics of one worker, in a registry of its own."""

    def __init__(self, rate_buckets: int = 100) -> None:
        """`rate_buckets`: so many buckets have a label of their own."""
        registry = CollectorRegistry()
        self.registry = registry
        self.commands = Counter(
            "runlane_commands_total",
            "Commands committed, by what became of them",
            ["outcome"],
            registry=registry,
        )
        self.dead_letters = Counter(
            "runlane_dead_letters_total", "Dead letters written, by code", ["code"], registry=registry
        )
        self.timers = Counter("runlane_timers_fired_total", "Timers fired", registry=registry)
        self.batch_seconds = Histogram(
            "runlane_batch_seconds",
            "Time to decide and commit one batch",
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_commands = Histogram(
            "runlane_batch_commands", "Commands in one committed batch", buckets=_SIZES, registry=registry
        )
        self.lanes_lost = Counter(
            "runlane_lanes_lost_total", "Lanes that had to be opened again", registry=registry
        )
        self.reread = Counter(
            "runlane_chunks_lost_total", "Fetched chunks that were lost and read again", registry=registry
        )
        self.lane_state = Gauge(
            "runlane_lane_state",
            "1 for the present state of each lane",
            ["partition", "state"],
            registry=registry,
        )
        self.lag = Gauge(
            "runlane_lag_commands",
            "Offsets between the watermark and the end of a command partition",
            ["topic", "partition"],
            registry=registry,
        )
        self.stalled = Gauge(
            "runlane_partition_stalled",
            "1 when a command partition stands still while its end moves on",
            ["topic", "partition"],
            registry=registry,
        )
        self.restored = Counter(
            "runlane_restored_records_total", "Changelog records restored", registry=registry
        )
        self._rates = RateMetrics(registry, rate_buckets)

    def batch(self, counts: BatchCounts, seconds: float) -> None:
        """Count a committed batch."""
        outcomes = {
            "applied": counts.applied,
            "refused": counts.refused,
            "repeated": counts.repeated,
            "forwarded": counts.forwarded,
            "skipped": counts.skipped,
        }
        for outcome, number in outcomes.items():
            if number:
                self.commands.labels(outcome).inc(number)
        for code, number in counts.dead_letters.items():
            self.dead_letters.labels(code).inc(number)
        self._rates.add(counts.by_key)
        if counts.timers:
            self.timers.inc(counts.timers)
        self.batch_seconds.observe(seconds)
        self.batch_commands.observe(sum(outcomes.values()))
