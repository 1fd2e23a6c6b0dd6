"""Memory: what a worker takes with many stored events, after loading them and after a restart."""

from __future__ import annotations

from dataclasses import dataclass

from streams.bench.loading import MB, load, settled_bytes
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.restore import start_and_restore
from streams.bench.workbench import Workbench
from streams.bench.workload import Workload

_TARGET = Target("at most", 400)
_EMPTY = "ready, nothing stored"


@dataclass(frozen=True)
class MemoryPlan:
    """How much to store. A run keeps its last 500 events, so `events` / `runs` should not exceed that."""

    events: int = 1_000_000
    runs: int = 2000


def run(bench: Workbench, plan: MemoryPlan) -> BenchResult:
    """Store the events, then restart the worker with and without its disk."""
    with bench.site("memory") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        loaded = load(bench, settings, worker, Workload(plan.events, plan.runs))
        worker.stop()
        bench.step("starting it again with its disk")
        start_and_restore(worker)
        kept = settled_bytes(worker)
        worker.stop()
        bench.step("starting it again without its disk")
        worker.lose_disk()
        restored = start_and_restore(worker)
        lost = settled_bytes(worker)
    sizes = {
        _EMPTY: loaded.before,
        "most while loading": loaded.peak,
        "after loading": loaded.after,
        "after a restart, disk kept": kept,
        "after a restart, disk lost": lost,
    }
    return BenchResult(
        name="memory",
        how=(
            f"Resident set of a worker with {plan.events:,} stored events, of {plan.runs:,} runs, "
            "in millions of bytes; while loading it is looked at ten times a second."
        ),
        figures=[
            Figure(name, size / MB, "MB", None if name == _EMPTY else _TARGET) for name, size in sizes.items()
        ],
        columns=["when", "MB"],
        rows=[[name, size / MB] for name, size in sizes.items()],
        checks={"commandsApplied": loaded.commands, "recordsRestored": restored.records},
        samples={"bytes": sizes},
    )
