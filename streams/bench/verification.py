"""Verification: how long `runlane verify` takes over the topics of a deployment, and in how much memory."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from streams.bench.loading import MB, load
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.workbench import Workbench
from streams.bench.workload import Workload
from streams.child_process import RunlaneProcess
from streams.settings import Settings
from streams.user_errors import UserError

_LOOK_EVERY_S = 0.05


@dataclass(frozen=True)
class VerificationPlan:
    """How many events the topics hold, of how many runs."""

    events: int = 1_000_000
    runs: int = 2000


@dataclass(frozen=True)
class _Verified:
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    report: dict[str, Any]


def run(bench: Workbench, plan: VerificationPlan) -> BenchResult:
    """Make a history, then verify it while nothing else runs."""
    with bench.site("verify") as (settings, folder):
        with Worker(settings, folder) as worker:
            worker.start().wait_ready()
            loaded = load(bench, settings, worker, Workload(plan.events, plan.runs))
        bench.step("verifying")
        verified = _verify(settings, folder)
    checked = {rule["rule"]: rule["checked"] for rule in verified.report["rules"]}
    records = sum(checked.values())
    return BenchResult(
        name="verify",
        how=(
            f"`runlane verify` over the topics of a worker that has stored {plan.events:,} events, of {plan.runs:,} "
            f"runs. Time is from its start to its end; memory is its resident set in millions of bytes, looked at "
            f"{1 / _LOOK_EVERY_S:.0f} times a second."
        ),
        figures=[
            Figure("time", verified.seconds, "s", Target("at most", 60)),
            Figure("processor time", verified.cpu_seconds, "s"),
            Figure("memory at most", verified.peak_bytes / MB, "MB", Target("at most", 300)),
        ],
        columns=["events", "things checked", "violations", "s"],
        rows=[[plan.events, records, len(verified.report["violations"]), verified.seconds]],
        checks={
            "commandsApplied": loaded.commands,
            "eventsChecked": checked["seq"],
            "clean": verified.report["clean"],
        },
        samples={"checked": checked},
    )


def _verify(settings: Settings, folder: Path) -> _Verified:
    """Raises `UserError` when the verification does not come to an end."""
    with RunlaneProcess(["verify", "--json"], folder, settings) as child:
        started = time.monotonic()
        process = psutil.Process(child.start().pid)
        peak, cpu_seconds = 0, 0.0
        while child.running.poll() is None:
            try:
                with process.oneshot():
                    peak = max(peak, process.memory_info().rss)
                    times = process.cpu_times()
                cpu_seconds = times.user + times.system
            except psutil.Error:
                continue
            time.sleep(_LOOK_EVERY_S)
        seconds = time.monotonic() - started
        if child.running.returncode not in (0, 1):
            raise child.gave_up(f"runlane verify ended with code {child.running.returncode}")
        lines = child.log_file.read_bytes().strip().splitlines()
    try:
        report: dict[str, Any] = orjson.loads(lines[-1])
    except (IndexError, ValueError):
        raise UserError(f"runlane verify has told nothing that can be read:\n{child.tail()}") from None
    return _Verified(seconds, cpu_seconds, peak, report)
