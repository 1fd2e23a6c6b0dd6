"""Rebalance: how long events pause when a second worker joins, and when it leaves cleanly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from streams.bench.loading import apply_all
from streams.bench.open_loop import EventWatch, OpenLoopSender
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.workbench import Workbench
from streams.bench.workload import Workload
from streams.user_errors import UserError

_ARRIVAL_PATIENCE_S = 60.0
JOIN, LEAVE, CALM = "a worker joins", "a worker leaves", "nothing happens"


@dataclass(frozen=True)
class RebalancePlan:
    """How fast commands come, how often a worker joins and leaves, how long things are watched after it."""

    rate: int = 1000
    warmup_commands: int = 20_000
    """So many as fast as they go before it: a fresh broker is slow."""
    runs: int = 2000
    repeats: int = 5
    watched_s: float = 3.0


Window = tuple[float, float]
"""From, until, by the monotonic clock."""


def run(bench: Workbench, plan: RebalancePlan) -> BenchResult:
    """Let a second worker join and leave `plan.repeats` times under load."""
    windows: dict[str, list[Window]] = {JOIN: [], LEAVE: [], CALM: []}
    with (
        bench.site("rebalance") as (settings, folder),
        Worker(settings, folder, "first") as first,
        Worker(settings, folder, "second") as second,
    ):
        first.start().wait_ready()
        apply_all(bench, settings, first, Workload(plan.warmup_commands, plan.runs, ends_runs=False))
        with EventWatch(settings) as watch:
            with OpenLoopSender(
                settings, plan.rate, runs=plan.runs, first_number=plan.warmup_commands
            ) as sender:
                for repeat in range(1, plan.repeats + 1):
                    bench.step(f"join and leave {repeat} of {plan.repeats}")
                    windows[CALM].append(_window(plan, lambda: None))
                    windows[JOIN].append(_window(plan, lambda: _join(second)))
                    windows[LEAVE].append(_window(plan, lambda: _leave(second)))
            watch.wait_for(sender.schedule.numbers, _ARRIVAL_PATIENCE_S)
            sent = len(sender.schedule.numbers)
        arrivals = [(at, partition) for at, partition, _ in watch.arrivals.seen]
    pauses = {
        what: [longest_pause(arrivals, window, bench.partitions) for window in seen]
        for what, seen in windows.items()
    }
    return _result(plan, pauses, sent)


def _window(plan: RebalancePlan, happens: Callable[[], None]) -> Window:
    start = time.monotonic()
    happens()
    time.sleep(plan.watched_s)
    return start, time.monotonic()


def _join(worker: Worker) -> None:
    worker.start().wait_ready()


def _leave(worker: Worker) -> None:
    code = worker.stop()
    if code != 0:
        raise UserError(f"The worker that was asked to leave ended with code {code}.")


def longest_pause(arrivals: Iterable[tuple[float, int]], window: Window, partitions: int) -> float:
    """The longest time, in seconds, in which any partition showed no event while the window was open.

    A pause counts from the last event before it, but not from before the window, and up to the window's end.
    """
    start, end = window
    last = dict.fromkeys(range(partitions), start)
    longest = 0.0
    for at, partition in arrivals:
        if start <= at <= end:
            longest = max(longest, at - last[partition])
            last[partition] = at
    return max(longest, *(end - at for at in last.values()))


def _result(plan: RebalancePlan, pauses: dict[str, list[float]], sent: int) -> BenchResult:
    return BenchResult(
        name="rebalance",
        how=(
            f"{plan.rate:,} commands/s; a second worker starts, works for {plan.watched_s:.0f} s and is stopped by "
            f"SIGTERM, {plan.repeats} times. A pause is the longest time in which a read_committed consumer got no "
            "event of some partition, from the start of the process, or the signal, on; the last row shows what "
            "that is when nothing happens. Afterwards every command had taken effect exactly once."
        ),
        figures=[
            Figure("a worker joins, longest pause", max(pauses[JOIN]), "s", Target("at most", 1)),
            Figure("a worker leaves, longest pause", max(pauses[LEAVE]), "s", Target("at most", 1.5)),
        ],
        columns=["", "median s", "longest s"],
        rows=[[what, median(found), max(found)] for what, found in pauses.items()],
        checks={"commandsSent": sent, "eachVisibleOnce": True},
        samples={"pausesS": pauses},
    )
