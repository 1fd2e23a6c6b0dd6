"""Live runs: the memory of a worker with many runs that have not ended, and how long it takes to restore them."""

from __future__ import annotations

from dataclasses import dataclass

from streams.bench.loading import MB, load, settled_bytes
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.restore import start_and_restore
from streams.bench.run_lives import CALLS_PER_LIFE, EVENTS_PER_LIFE, lives
from streams.bench.workbench import Workbench

_TARGET = Target("at most", 600)


@dataclass(frozen=True)
class LiveRunsPlan:
    """How many runs; each has 20 events, 5 published calls and launch state."""

    runs: int = 100_000


def run(bench: Workbench, plan: LiveRunsPlan) -> BenchResult:
    """Bring the runs to life, then start the worker on an empty disk."""
    series = lives(range(plan.runs))
    with bench.site("live-runs") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        loaded = load(bench, settings, worker, series)
        worker.stop()
        bench.step("starting it again without its disk")
        worker.lose_disk()
        restored = start_and_restore(worker)
        lost = settled_bytes(worker)
    return BenchResult(
        name="live-runs",
        how=(
            f"A worker with {plan.runs:,} runs that have not ended, each with {EVENTS_PER_LIFE} events, "
            f"{CALLS_PER_LIFE} published calls, launch state and an instance: {series.commands:,} commands. Resident "
            "set in millions of bytes; the restore begins on an empty disk, from when the group assigned the lanes "
            "until all serve."
        ),
        figures=[
            Figure("most while loading", loaded.peak / MB, "MB", _TARGET),
            Figure("after loading", loaded.after / MB, "MB", _TARGET),
            Figure("after a restart, disk lost", lost / MB, "MB", _TARGET),
            Figure("restore", restored.seconds, "s", Target("at most", 30)),
            Figure("restored", restored.records / restored.seconds, "records/s"),
        ],
        columns=["runs", "commands", "records restored", "restore s", "start to ready s"],
        rows=[[plan.runs, series.commands, restored.records, restored.seconds, restored.start_to_ready_s]],
        checks={"commandsApplied": loaded.commands, "recordsRestored": restored.records},
        samples={"bytes": {"peak": loaded.peak, "loaded": loaded.after, "restored": lost}},
    )
