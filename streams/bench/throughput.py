"""Throughput: the same preloaded commands through runlane, a plain Faust agent and a bare loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from schemas.topics import RUN_COMMANDS, RUN_EVENTS, RUN_TERMINALS
from streams.bench import bare_loop, plain_faust
from streams.bench.processes import Worker, have_done
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.visible_output import Rate, command_ids, curve, rate, read_records, sample_until
from streams.bench.workbench import Workbench
from streams.bench.workload import Workload, preload
from streams.child_process import ChildProcess
from streams.messaging.topic_positions import Positions
from streams.settings import Settings
from streams.user_errors import UserError

RUNLANE, TWO, FAUST, BARE = "runlane", "runlane, two workers", "plain Faust agent", "bare loop"


@dataclass(frozen=True)
class ThroughputPlan:
    """How much to send, and how often."""

    commands: int = 200_000
    runs: int = 2000
    faust_commands: int = 15_000
    """The plain Faust agent gets fewer of the same commands, so that a round does not take minutes."""
    warmup_commands: int = 40_000
    """One round with so many before the first, not counted: a fresh broker is slow."""
    rounds: int = 3


@dataclass
class _Outcome:
    rates: list[Rate] = field(default_factory=list)
    curves: list[list[tuple[float, int]]] = field(default_factory=list)


def run(bench: Workbench, plan: ThroughputPlan) -> BenchResult:
    """Measure all of them, in turn, `plan.rounds` times."""
    outcomes = {RUNLANE: _Outcome(), FAUST: _Outcome(), BARE: _Outcome(), TWO: _Outcome()}
    checks: list[dict[str, Any]] = []
    if plan.warmup_commands:
        workload = Workload(plan.warmup_commands, min(plan.runs, plan.warmup_commands))
        warmup = {RUNLANE: _Outcome(), BARE: _Outcome()}
        _round(bench, "warm-up", workload, plan.faust_commands, warmup)
    for number in range(1, plan.rounds + 1):
        workload = Workload(plan.commands, plan.runs)
        name = f"round {number} of {plan.rounds}"
        checks.append(_round(bench, name, workload, plan.faust_commands, outcomes))
    return _result(plan, outcomes, checks)


def _round(
    bench: Workbench, name: str, workload: Workload, faust_commands: int, outcomes: dict[str, _Outcome]
) -> dict[str, Any]:
    checks: dict[str, Any] = {"commands": workload.commands}
    # What runlane has done stays in its topics, so two workers need topics of their own for the same commands.
    for group in ((RUNLANE, FAUST, BARE), (TWO,)):
        present = [contender for contender in group if contender in outcomes]
        if not present:
            continue
        with preloaded_site(bench, workload, name) as (settings, folder):
            for contender in present:
                total = min(faust_commands if contender == FAUST else workload.commands, workload.commands)
                with bench.bar(f"{name}: {contender}, {total:,} commands", total) as progress:
                    found, points, checks[contender] = _CONTENDERS[contender](
                        bench, settings, folder, workload, total, progress
                    )
                outcomes[contender].rates.append(found)
                outcomes[contender].curves.append(points)
                bench.step(
                    f"{name}: {contender}: {found.per_second:,.0f} commands/s, "
                    f"{found.cpu_us:.1f} us of its processor time each"
                )
    return checks


@contextmanager
def preloaded_site(bench: Workbench, workload: Workload, name: str) -> Iterator[tuple[Settings, Path]]:
    """A site whose `run-commands` hold the workload, with the topics that the baselines write."""
    with bench.site("throughput") as (settings, folder):
        bench.make_topics(
            settings,
            {
                plain_faust.EVENTS: RUN_EVENTS,
                plain_faust.TERMINALS: RUN_TERMINALS,
                bare_loop.OUTPUT: RUN_EVENTS,
            },
        )
        with bench.bar(f"{name}: sending {workload.commands:,} commands", workload.commands) as progress:
            preload(settings, workload, progress)
        yield settings, folder


_Measurement = tuple[Rate, list[tuple[float, int]], dict[str, Any]]
_Progress = Callable[[float], None]


def run_runlane(
    bench: Workbench, settings: Settings, folder: Path, workload: Workload, total: int, progress: _Progress
) -> _Measurement:
    """One worker over all commands of the site; counts what became of them."""
    return _run_workers(bench, settings, folder, workload, total, progress, workers=1)


def _run_two(
    bench: Workbench, settings: Settings, folder: Path, workload: Workload, total: int, progress: _Progress
) -> _Measurement:
    return _run_workers(bench, settings, folder, workload, total, progress, workers=2)


def _run_workers(
    bench: Workbench,
    settings: Settings,
    folder: Path,
    workload: Workload,
    total: int,
    progress: _Progress,
    *,
    workers: int,
) -> _Measurement:
    events = settings.name(RUN_EVENTS.name)
    positions = bench.positions()
    ends = positions.ends(settings.name(RUN_COMMANDS.name), bench.partitions)
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Worker(settings, folder, f"worker-{number}")) for number in range(workers)
        ]

        def is_done(visible: Positions) -> bool:
            if sum(visible.values()) < total or not have_done(processes, ends):
                return False
            return positions.ends(events, bench.partitions) == visible

        samples = sample_until(
            processes, bench.broker_pid, positions, events, bench.partitions, is_done, progress
        )
    records = read_records(settings, events, bench.partitions)
    ids = command_ids(records)
    ended = read_records(settings, settings.name(RUN_TERMINALS.name), bench.partitions)
    check = {
        "events": len(ids),
        "commandsApplied": len(set(ids)),
        "runsEnded": sum(len(part) for part in ended.values()),
        "runsToEnd": workload.ended_runs,
    }
    if not len(ids) == len(set(ids)) == total or check["runsEnded"] != check["runsToEnd"]:
        raise UserError(
            f"The worker did not apply every command exactly once: {check} of {total:,} commands."
        )
    return rate(samples, records), curve(samples), check


def _run_faust(
    bench: Workbench, settings: Settings, folder: Path, workload: Workload, total: int, progress: _Progress
) -> _Measurement:
    return _run_baseline(bench, settings, folder, "plain_faust", plain_faust.EVENTS, total, progress)


def _run_bare(
    bench: Workbench, settings: Settings, folder: Path, workload: Workload, total: int, progress: _Progress
) -> _Measurement:
    return _run_baseline(bench, settings, folder, "bare_loop", bare_loop.OUTPUT, total, progress)


def _run_baseline(
    bench: Workbench,
    settings: Settings,
    folder: Path,
    module: str,
    output: str,
    total: int,
    progress: _Progress,
) -> _Measurement:
    topic = settings.name(output)
    environment = {
        "RUNLANE_BROKERS": settings.brokers or "",
        "RUNLANE_PREFIX": settings.prefix,
        "RUNLANE_PARTITIONS": str(settings.partitions),
        "RUNLANE_DATA_DIR": str(folder / module),
    }
    command = [sys.executable, "-m", f"streams.bench.{module}"]
    with ChildProcess(module, command, folder, environment) as process:
        samples = sample_until(
            [process],
            bench.broker_pid,
            bench.positions(),
            topic,
            bench.partitions,
            lambda visible: sum(visible.values()) >= total,
            progress,
        )
    records = read_records(settings, topic, bench.partitions)
    # It may have gone on until it was stopped; what was not sampled does not count.
    last = samples[-1].visible
    seen = {p: [record for record in part if record[0] < last[p]] for p, part in records.items()}
    check = {"records": sum(len(part) for part in seen.values())}
    return rate(samples, seen), curve(samples), check


_CONTENDERS = {RUNLANE: run_runlane, TWO: _run_two, FAUST: _run_faust, BARE: _run_bare}


def _result(plan: ThroughputPlan, outcomes: dict[str, _Outcome], checks: list[dict[str, Any]]) -> BenchResult:
    rates = {name: [found.per_second for found in outcome.rates] for name, outcome in outcomes.items()}
    to_faust = [ours / theirs for ours, theirs in zip(rates[RUNLANE], rates[FAUST], strict=True)]
    to_bare = {
        name: [ours / theirs * 100 for ours, theirs in zip(rates[name], rates[BARE], strict=True)]
        for name in (RUNLANE, TWO)
    }
    return BenchResult(
        name="throughput",
        how=(
            f"{plan.commands:,} preloaded events.append commands of about 230 bytes to {plan.runs:,} runs, "
            f"every tenth of which ends; {plan.rounds} interleaved rounds, each with fresh topics of which "
            "all three read the same commands; two workers get the same commands in topics of their own, and "
            "the second one joins while the first is at work. Measured from the first output that a "
            "read_committed reader could see to the last, by the stable offsets of the output topic, every "
            "20 ms: start-up and the first batch do not count. The plain Faust agent (stock settings, RocksDB "
            f"tables, at least once) does {plan.faust_commands:,} of the commands. The bare loop copies each "
            "record, in batches, with the native client."
        ),
        figures=[
            Figure("one worker, exactly once, median", median(rates[RUNLANE]), "commands/s"),
            Figure(
                "one worker, against the plain Faust agent", median(to_faust), "x", Target("at least", 10)
            ),
            Figure(
                "one worker, against the bare loop", median(to_bare[RUNLANE]), "%", Target("at least", 20)
            ),
            Figure("two workers, exactly once, median", median(rates[TWO]), "commands/s"),
            Figure("two workers, against the bare loop", median(to_bare[TWO]), "%", Target("at least", 20)),
        ],
        columns=["", "median/s", "min/s", "max/s", "its CPU, us each", "broker's CPU, us each"],
        rows=[
            [
                name,
                median(rates[name]),
                min(rates[name]),
                max(rates[name]),
                median(found.cpu_us for found in outcome.rates),
                median(found.broker_cpu_us for found in outcome.rates),
            ]
            for name, outcome in outcomes.items()
        ],
        checks={"rounds": checks},
        samples={
            "ratesPerSecond": rates,
            "timesFaust": to_faust,
            "percentOfBare": to_bare,
            "visibleOverTime": {name: outcome.curves for name, outcome in outcomes.items()},
        },
    )
