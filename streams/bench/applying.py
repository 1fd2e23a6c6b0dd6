"""What it costs a running worker to apply a series of commands."""

from __future__ import annotations

import time
from dataclasses import dataclass

from schemas.topics import RUN_COMMANDS
from streams.bench.processes import Worker, cpu_seconds
from streams.bench.workbench import Workbench
from streams.bench.workload import Commands, preload
from streams.settings import Settings

_POLL_S = 0.02
_STANDS_STILL_S = 90.0


@dataclass(frozen=True)
class Applied:
    """A series that a worker has applied, from when the first of it was sent."""

    commands: int
    seconds: float
    cpu_us: float
    """Processor time of the worker for each command, in microseconds."""

    @property
    def per_second(self) -> float:
        """Commands per second."""
        return self.commands / self.seconds


def apply(bench: Workbench, settings: Settings, worker: Worker, series: Commands, what: str) -> Applied:
    """Send a series as fast as the broker takes it, and wait until the worker has committed all of it."""
    with bench.bar(f"{what}: {series.commands:,} commands", series.commands) as progress:
        before = done = sum(worker.watermarks().values())
        began, cpu = time.monotonic(), cpu_seconds(worker)
        preload(settings, series)
        ends = bench.positions().ends(settings.name(RUN_COMMANDS.name), bench.partitions)
        moved_at = time.monotonic()
        while not worker.has_done(ends):
            worker.require_alive()
            now = sum(worker.watermarks().values())
            progress(now - before)
            if now != done:
                done, moved_at = now, time.monotonic()
            elif time.monotonic() - moved_at > _STANDS_STILL_S:
                raise worker.gave_up(f"The worker has stood still for {_STANDS_STILL_S:.0f} s")
            time.sleep(_POLL_S)
        seconds, cpu = time.monotonic() - began, cpu_seconds(worker) - cpu
    return Applied(series.commands, seconds, cpu / series.commands * 1e6)
