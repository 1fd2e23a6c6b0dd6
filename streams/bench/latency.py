"""Latency: from the moment a command was due to be sent until its event is visible, at several rates."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from streams.bench.open_loop import EventWatch, OpenLoopSender
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.workbench import Workbench
from streams.settings import Settings

TARGET_RATE = 200
_RUNS = 2000
_ARRIVAL_PATIENCE_S = 60.0
_PERCENTS = (50, 90, 99, 100)


@dataclass(frozen=True)
class LatencyPlan:
    """At which rates, for how long, how often."""

    rates: tuple[int, ...] = (50, 200, 1000, 3000)
    first_warmup_s: float = 10.0
    """At the highest rate, before everything: a fresh broker is slow for its first thousands of requests."""
    warmup_s: float = 3.0
    """At each rate, before what is measured."""
    seconds: float = 20.0
    rounds: int = 3


def run(bench: Workbench, plan: LatencyPlan) -> BenchResult:
    """Measure each rate in turn, `plan.rounds` times, on one worker."""
    found: dict[int, list[list[float]]] = defaultdict(list)
    lateness: dict[int, float] = defaultdict(float)
    with bench.site("latency") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        with bench.bar("warming up", plan.first_warmup_s) as progress:
            sender, _ = _at_rate(settings, max(plan.rates), 0, plan.first_warmup_s, 0, progress)
        number = sender.schedule.numbers.stop
        for round_number in range(1, plan.rounds + 1):
            for rate in plan.rates:
                seconds = plan.warmup_s + plan.seconds
                with bench.bar(
                    f"round {round_number} of {plan.rounds}: {rate:,} commands/s", seconds
                ) as progress:
                    sender, latencies = _at_rate(
                        settings, rate, plan.warmup_s, plan.seconds, number, progress
                    )
                number = sender.schedule.numbers.stop
                found[rate].append(percentiles(latencies))
                lateness[rate] = max(lateness[rate], sender.schedule.latest_s * 1000)
                p50, p90, p99, worst = found[rate][-1]
                bench.step(
                    f"{rate:,}/s: p50 {p50:.1f} ms, p90 {p90:.1f} ms, p99 {p99:.1f} ms, max {worst:.1f} ms"
                )
    return _result(plan, found, lateness, number)


def _at_rate(
    settings: Settings,
    rate: int,
    warmup_s: float,
    seconds: float,
    first_number: int,
    progress: Callable[[float], None],
) -> tuple[OpenLoopSender, list[float]]:
    with EventWatch(settings) as watch:
        with OpenLoopSender(settings, rate, runs=_RUNS, first_number=first_number) as sender:
            end = time.monotonic() + warmup_s + seconds
            while (left := end - time.monotonic()) > 0:
                progress(warmup_s + seconds - left)
                time.sleep(min(left, 0.25))
        schedule = sender.schedule
        watch.wait_for(schedule.numbers, _ARRIVAL_PATIENCE_S)
    measured_from = schedule.started + warmup_s
    latencies = [
        (at - intended) * 1000
        for at, _, number in watch.arrivals.numbered(schedule.numbers)
        if (intended := schedule.intended(number)) >= measured_from
    ]
    return sender, latencies


def percentiles(values: Sequence[float]) -> list[float]:
    """The values that 50, 90, 99 and 100 percent do not exceed."""
    ordered = sorted(values)
    return [ordered[math.ceil(percent / 100 * len(ordered)) - 1] for percent in _PERCENTS]


def _result(
    plan: LatencyPlan, found: dict[int, list[list[float]]], lateness: dict[int, float], sent: int
) -> BenchResult:
    typical = {
        rate: [median(column) for column in zip(*rounds, strict=True)] for rate, rounds in found.items()
    }
    figures = []
    for rate, (p50, _, p99, _) in typical.items():
        has_target = rate == TARGET_RATE
        figures.append(Figure(f"p50 at {rate:,}/s", p50, "ms", Target("at most", 10) if has_target else None))
        figures.append(Figure(f"p99 at {rate:,}/s", p99, "ms", Target("at most", 60) if has_target else None))
    return BenchResult(
        name="latency",
        how=(
            f"events.append to {_RUNS:,} runs on a fixed schedule, {plan.seconds:.0f} s at each rate after "
            f"{plan.warmup_s:.0f} s of warm-up, {plan.rounds} rounds, medians of the rounds. Each command counts "
            "from the moment it was due to be sent, not from when it left, until a read_committed consumer "
            "(fetch wait 5 ms) had its event. Sender, consumer, worker and broker share the machine."
        ),
        figures=figures,
        columns=["commands/s", "p50 ms", "p90 ms", "p99 ms", "max ms", "sender late by at most, ms"],
        rows=[[rate, *values, lateness[rate]] for rate, values in typical.items()],
        checks={"commandsSent": sent, "eachVisibleOnce": True},
        samples={"p50p90p99max": {str(rate): rounds for rate, rounds in found.items()}},
    )
