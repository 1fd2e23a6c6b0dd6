"""Memory: what a worker takes with many stored events, after loading them and after a restart."""

from __future__ import annotations

import time
from dataclasses import dataclass

from streams.bench.loading import apply_all
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.restore import start_and_restore
from streams.bench.workbench import Workbench
from streams.bench.workload import Workload
from streams.user_errors import UserError

_MB = 1_000_000
_TARGET = Target("at most", 400)
_SETTLE_S = 2.0


@dataclass(frozen=True)
class MemoryPlan:
    """How much to store. A run keeps its last 500 events, so `events` / `runs` should not exceed that."""

    events: int = 1_000_000
    runs: int = 2000


def run(bench: Workbench, plan: MemoryPlan) -> BenchResult:
    """Store the events, then restart the worker with and without its disk."""
    with bench.site("memory") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        empty = worker.resident_bytes()
        peak = empty

        def watch() -> None:
            nonlocal peak
            peak = max(peak, worker.resident_bytes())

        apply_all(bench, settings, worker, Workload(plan.events, plan.runs), watch)
        time.sleep(_SETTLE_S)
        applied = int(worker.metric("runlane_commands_total"))
        if applied != plan.events:
            raise UserError(f"The worker counts {applied:,} commands, {plan.events:,} were sent.")
        loaded = worker.resident_bytes()
        worker.stop()
        bench.step("starting it again with its disk")
        start_and_restore(worker)
        time.sleep(_SETTLE_S)
        kept = worker.resident_bytes()
        worker.stop()
        bench.step("starting it again without its disk")
        worker.lose_disk()
        restored = start_and_restore(worker)
        time.sleep(_SETTLE_S)
        lost = worker.resident_bytes()
    sizes = {
        "ready, nothing stored": empty,
        "most while loading": peak,
        "after loading": loaded,
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
            Figure(name, size / _MB, "MB", None if size is empty else _TARGET) for name, size in sizes.items()
        ],
        columns=["when", "MB"],
        rows=[[name, size / _MB] for name, size in sizes.items()],
        checks={"commandsApplied": applied, "recordsRestored": restored.records},
        samples={"bytes": sizes},
    )
