"""Bring a worker to a certain amount of state, and look at its memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from schemas.topics import RUN_COMMANDS, STATE_CHANGELOG
from streams.bench.processes import Worker
from streams.bench.workbench import Workbench
from streams.bench.workload import Commands, Workload, preload
from streams.settings import Settings
from streams.user_errors import UserError

MB = 1_000_000
"""In what memory is told."""
_COMMANDS_AT_ONCE = 50_000
_RECORDS_PER_COMMAND = 3
_POLL_S = 0.1
_STANDS_STILL_S = 90.0
_SETTLE_S = 2.0


@dataclass(frozen=True)
class Loaded:
    """What applying a workload did to a worker: its resident memory in bytes."""

    commands: int
    """As the worker counts them."""
    before: int
    peak: int
    """Looked at ten times a second."""
    after: int


def load(bench: Workbench, settings: Settings, worker: Worker, workload: Commands) -> Loaded:
    """Have a worker that was just started apply a workload. Raises `UserError` when it counts other commands."""
    before = peak = worker.resident_bytes()

    def watch() -> None:
        nonlocal peak
        peak = max(peak, worker.resident_bytes())

    apply_all(bench, settings, worker, workload, watch)
    after = settled_bytes(worker)
    applied = int(worker.metric("runlane_commands_total"))
    if applied != workload.commands:
        raise UserError(f"The worker counts {applied:,} commands, {workload.commands:,} were sent.")
    return Loaded(applied, before, peak, after)


def settled_bytes(worker: Worker) -> int:
    """Resident memory of a worker that has nothing to do any more."""
    time.sleep(_SETTLE_S)
    return worker.resident_bytes()


def apply_all(
    bench: Workbench,
    settings: Settings,
    worker: Worker,
    workload: Commands,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    """Send the workload; returns when the worker has committed all of it. `meanwhile` is called now and then."""
    with bench.bar(f"sending {workload.commands:,} commands", workload.commands) as progress:
        preload(settings, workload, progress)
    with bench.bar(f"applying {workload.commands:,} commands", workload.commands) as progress:
        _until_done(bench, settings, worker, progress, meanwhile)


def fill_changelog(bench: Workbench, settings: Settings, worker: Worker, records: int, runs: int) -> int:
    """Send commands until the changelog has so many records; returns the number of the next command."""
    positions, topic = bench.positions(), settings.name(STATE_CHANGELOG.name)
    sent = 0
    with bench.bar(f"filling the changelog with {records:,} records", records) as progress:
        while (found := sum(positions.visible(topic, bench.partitions).values())) < records:
            progress(found)
            share = max(1, min(_COMMANDS_AT_ONCE, (records - found) // _RECORDS_PER_COMMAND))
            preload(settings, Workload(share, runs, first_number=sent, ends_runs=False))
            sent += share
            _until_done(bench, settings, worker)
    return sent


def _until_done(
    bench: Workbench,
    settings: Settings,
    worker: Worker,
    progress: Callable[[float], None] = lambda done: None,
    meanwhile: Callable[[], None] = lambda: None,
) -> None:
    ends = bench.positions().ends(settings.name(RUN_COMMANDS.name), bench.partitions)
    done, moved_at = -1, time.monotonic()
    while not worker.has_done(ends):
        worker.require_alive()
        meanwhile()
        now = sum(worker.watermarks().values())
        progress(now)
        if now != done:
            done, moved_at = now, time.monotonic()
        elif time.monotonic() - moved_at > _STANDS_STILL_S:
            raise worker.gave_up(f"The worker has stood still for {_STANDS_STILL_S:.0f} s")
        time.sleep(_POLL_S)
