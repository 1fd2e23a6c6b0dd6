"""The benchmarks by name, each with a full and a quick plan, and what one run of some of them makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from streams.bench import (
    calls,
    failover,
    full_runs,
    latency,
    live_runs,
    memory,
    rates,
    rebalance,
    restore,
    setting,
    throughput,
    verification,
)
from streams.bench.report import BenchResult, Conditions
from streams.bench.workbench import Workbench, workbench
from streams.settings import Settings
from streams.user_errors import UserError


@dataclass(frozen=True)
class Bench:
    """One benchmark."""

    run: Callable[[Workbench, Any], BenchResult]
    full: Any
    """The plan by which figures are judged."""
    quick: Any
    """A plan that shows in a minute or so whether all is well."""


BENCHES: Mapping[str, Bench] = {
    "throughput": Bench(
        throughput.run,
        throughput.ThroughputPlan(),
        throughput.ThroughputPlan(commands=40_000, faust_commands=3000, warmup_commands=10_000),
    ),
    "latency": Bench(
        latency.run,
        latency.LatencyPlan(),
        latency.LatencyPlan(first_warmup_s=4, warmup_s=1, seconds=4, rounds=1),
    ),
    "restore": Bench(restore.run, restore.RestorePlan(), restore.RestorePlan(records=100_000, rounds=1)),
    "memory": Bench(memory.run, memory.MemoryPlan(), memory.MemoryPlan(events=100_000)),
    "calls": Bench(
        calls.run,
        calls.CallsPlan(),
        calls.CallsPlan(warmup_s=2, lead_s=1, seconds=4, commands=16_000, rounds=1),
    ),
    "full-runs": Bench(
        full_runs.run,
        full_runs.FullRunsPlan(),
        full_runs.FullRunsPlan(runs=20, commands=10_000, rounds=2),
    ),
    "live-runs": Bench(live_runs.run, live_runs.LiveRunsPlan(), live_runs.LiveRunsPlan(runs=3000)),
    "verify": Bench(
        verification.run, verification.VerificationPlan(), verification.VerificationPlan(events=100_000)
    ),
    "rates": Bench(
        rates.run,
        rates.RatesPlan(),
        rates.RatesPlan(acquires=20_000, seconds=2, rounds=1),
    ),
    "failover": Bench(
        failover.run, failover.FailoverPlan(), failover.FailoverPlan(changelog_records=50_000, repeats=2)
    ),
    "rebalance": Bench(rebalance.run, rebalance.RebalancePlan(), rebalance.RebalancePlan(repeats=2)),
}
"""In the order in which `all` runs them."""


@dataclass
class Report:
    """What one run of the suite found."""

    started_at: str
    machine: dict[str, Any]
    versions: dict[str, str]
    plans: dict[str, Any]
    results: dict[str, BenchResult] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """Benchmarks that could not be finished, and why."""
    conditions: dict[str, list[Conditions]] = field(default_factory=dict)
    """How busy the machine was before and after each benchmark."""
    seconds: dict[str, float] = field(default_factory=dict)
    """How long each benchmark took."""


def run(
    settings: Settings,
    plans: Mapping[str, Any],
    console: Console,
    results_dir: Path,
    on_result: Callable[[BenchResult, Conditions, Conditions], None],
) -> tuple[Report, Path]:
    """Run the benchmarks that have a plan; returns the report and the file that it was written to.

    `console` gets what is being done. The file is written after each benchmark. One that fails is noted, and
    the others go on.
    """
    report = Report(
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=setting.machine(),
        versions=setting.versions(own_broker=not settings.brokers),
        plans=dict(plans),
    )
    results_dir.mkdir(parents=True, exist_ok=True)
    file = results_dir / f"{report.started_at.replace(':', '-')}.json"
    with workbench(settings, console) as bench:
        for name, plan in plans.items():
            started, before = time.monotonic(), setting.conditions()
            try:
                result = BENCHES[name].run(bench, plan)
            except UserError as error:
                report.failures[name] = str(error)
                bench.step(f"{name} failed: {error}")
            else:
                report.results[name] = result
            after = setting.conditions()
            report.conditions[name] = [before, after]
            report.seconds[name] = round(time.monotonic() - started, 1)
            if name in report.results:
                on_result(report.results[name], before, after)
            file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))
    return report, file
