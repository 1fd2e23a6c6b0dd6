"""Restore: how fast a worker that has lost its disk reads its state back from the changelog."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from streams.bench.loading import fill_changelog
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.workbench import Workbench

_POLL_S = 0.03
_PATIENCE_S = 300.0


@dataclass(frozen=True)
class RestorePlan:
    """How much to restore, how often."""

    records: int = 1_000_000
    runs: int = 2000
    rounds: int = 3


@dataclass(frozen=True)
class Restored:
    """One start with an empty disk."""

    records: int
    seconds: float
    """From when the lanes were assigned until all serve: fencing the old owner included."""
    start_to_ready_s: float
    progress_seen: int
    """How many different stages of progress the health page showed."""


def run(bench: Workbench, plan: RestorePlan) -> BenchResult:
    """Fill a changelog, then start on an empty disk `plan.rounds` times."""
    with bench.site("restore") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        commands = fill_changelog(bench, settings, worker, plan.records, plan.runs)
        worker.stop()
        found = []
        for number in range(1, plan.rounds + 1):
            with bench.bar(f"restore {number} of {plan.rounds}", 1):
                worker.lose_disk()
                found.append(start_and_restore(worker))
                worker.stop()
            bench.step(f"{found[-1].records:,} records in {found[-1].seconds:.1f} s")
    rates = [one.records / one.seconds for one in found]
    return BenchResult(
        name="restore",
        how=(
            f"A changelog filled by {commands:,} events.append commands to {plan.runs:,} runs; then the worker's "
            f"folder is deleted and the worker started, {plan.rounds} times. The time runs from when the group "
            "assigned the lanes until all of them serve; it includes taking over the transactional ids."
        ),
        figures=[
            Figure("restore, median", median(rates), "records/s", Target("at least", 100_000)),
            Figure("process start to ready, median", median(one.start_to_ready_s for one in found), "s"),
        ],
        columns=[
            "round",
            "records",
            "restore s",
            "records/s",
            "start to ready s",
            "stages of progress shown",
        ],
        rows=[
            [
                number,
                one.records,
                one.seconds,
                one.records / one.seconds,
                one.start_to_ready_s,
                one.progress_seen,
            ]
            for number, one in enumerate(found, 1)
        ],
        checks={"commands": commands, "records": [one.records for one in found]},
        samples={"recordsPerSecond": rates},
    )


def start_and_restore(worker: Worker) -> Restored:
    """Start a worker and follow its health page until every lane serves."""
    started = time.monotonic()
    worker.start()
    assigned = 0.0
    stages: set[str] = set()
    while True:
        ready, lanes = worker.health()
        now = time.monotonic()
        if lanes and not assigned:
            assigned = now
        stages.update(f"{lane['partition']} {lane['restored']}" for lane in lanes if lane["restored"])
        if ready and lanes:
            break
        worker.require_alive()
        if now - started > _PATIENCE_S:
            raise worker.gave_up(f"The worker has not restored after {_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)
    return Restored(
        records=int(worker.metric("runlane_restored_records_total")),
        seconds=max(now - assigned, _POLL_S),
        start_to_ready_s=now - started,
        progress_seen=len(stages),
    )
