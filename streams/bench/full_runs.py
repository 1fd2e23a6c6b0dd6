"""Full runs: what a command costs on a run that has much stored, against one that has nothing."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from streams.bench.applying import Applied, apply
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.run_lives import append_events, publish_calls, steps
from streams.bench.workbench import Workbench

_COMMANDS_PER_STEP = 5
_FRESH_FROM = 1_000_000


@dataclass(frozen=True)
class FullRunsPlan:
    """How full, and how many commands are measured on full runs and as many on fresh ones."""

    events: int = 500
    calls: int = 1000
    runs: int = 100
    commands: int = 40_000
    rounds: int = 5


def run(bench: Workbench, plan: FullRunsPlan) -> BenchResult:
    """Fill the runs, then measure steps on them and on fresh runs in turn."""
    full: list[Applied] = []
    fresh: list[Applied] = []
    steps_each = max(1, plan.commands // plan.runs // _COMMANDS_PER_STEP)
    runs, fresh_runs = range(plan.runs), plan.runs * steps_each
    with bench.site("full-runs") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        apply(bench, settings, worker, append_events(runs, range(plan.events)), "filling with events")
        apply(bench, settings, worker, publish_calls(runs, range(plan.calls)), "filling with calls")
        for number in range(plan.rounds):
            at = plan.calls + plan.events + number * steps_each
            name = f"round {number + 1} of {plan.rounds}"
            full.append(
                apply(bench, settings, worker, steps(runs, range(at, at + steps_each)), f"{name}: full runs")
            )
            begin = _FRESH_FROM + number * fresh_runs
            fresh_steps = steps(range(begin, begin + fresh_runs), range(1))
            fresh.append(apply(bench, settings, worker, fresh_steps, f"{name}: fresh runs"))
            bench.step(
                f"{name}: {full[-1].cpu_us:.1f} us on full runs, {fresh[-1].cpu_us:.1f} us on fresh ones"
            )
        applied = int(worker.metric("runlane_commands_total"))
    ratios = [one.cpu_us / other.cpu_us * 100 for one, other in zip(full, fresh, strict=True)]
    return BenchResult(
        name="full-runs",
        how=(
            f"The processor time of a worker for steps of an executor (an event, a call claimed, published and hit, a "
            f"child's result): on {plan.runs:,} runs with {plan.events:,} events and {plan.calls:,} calls each, and on "
            f"runs of which nothing is known, {fresh_runs * _COMMANDS_PER_STEP:,} commands each, in turn, "
            f"{plan.rounds} times. A full run's commands also remove the oldest event and the oldest remembered answer."
        ),
        figures=[
            Figure("full runs, median", median(one.cpu_us for one in full), "us"),
            Figure("fresh runs, median", median(one.cpu_us for one in fresh), "us"),
            Figure("full against fresh, median of the rounds", median(ratios), "%", Target("at most", 110)),
        ],
        columns=["round", "full runs, us", "fresh runs, us", "%", "full, commands/s", "fresh, commands/s"],
        rows=[
            [number, one.cpu_us, other.cpu_us, ratio, one.per_second, other.per_second]
            for number, (one, other, ratio) in enumerate(zip(full, fresh, ratios, strict=True), 1)
        ],
        checks={"commandsApplied": applied},
        samples={"percent": ratios},
    )
