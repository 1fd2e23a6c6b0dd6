"""Failover: from kill -9 to the first new command that the restarted worker has applied."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from schemas.topics import STATE_CHANGELOG
from streams.bench.loading import fill_changelog
from streams.bench.open_loop import EventWatch, OpenLoopSender, Schedule
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.workbench import Workbench
from streams.user_errors import UserError

_TARGET = Target("at most", 3)
_POLL_S = 0.02
_PATIENCE_S = 120.0
_CALM_S = 1.5
KEPT, LOST = "disk kept", "disk lost"


@dataclass(frozen=True)
class FailoverPlan:
    """How much state there is, how fast commands come, how often the worker is killed in each way."""

    changelog_records: int = 200_000
    runs: int = 2000
    rate: int = 200
    repeats: int = 5


@dataclass(frozen=True)
class Failover:
    """One kill, in seconds after it."""

    first_s: float
    """Until the first new command was visible."""
    all_s: float
    """Until every partition had shown a new command."""
    restore_s: float
    """How long records were read back: from the first progress to the first lane that served."""


def run(bench: Workbench, plan: FailoverPlan) -> BenchResult:
    """Kill and restart, with and without the disk in turn."""
    found: dict[str, list[Failover]] = {KEPT: [], LOST: []}
    with bench.site("failover") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        number = fill_changelog(bench, settings, worker, plan.changelog_records, plan.runs)
        records = sum(
            bench.positions().visible(settings.name(STATE_CHANGELOG.name), bench.partitions).values()
        )
        with EventWatch(settings) as watch:
            with OpenLoopSender(settings, plan.rate, runs=plan.runs, first_number=number) as sender:
                for repeat in range(1, plan.repeats + 1):
                    for how in (KEPT, LOST):
                        bench.step(f"kill {repeat} of {plan.repeats}, {how}")
                        found[how].append(
                            _kill(worker, watch, sender.schedule, bench.partitions, lose=how == LOST)
                        )
                        one = found[how][-1]
                        bench.step(
                            f"first new command after {one.first_s:.2f} s, all partitions after {one.all_s:.2f} s"
                        )
            watch.wait_for(sender.schedule.numbers, _PATIENCE_S)
            sent = len(sender.schedule.numbers)
    return _result(plan, found, records, sent)


def _kill(worker: Worker, watch: EventWatch, schedule: Schedule, partitions: int, *, lose: bool) -> Failover:
    _wait_until_flowing(worker, watch, schedule, partitions)
    killed = time.monotonic()
    worker.kill()
    if lose:
        worker.lose_disk()
    worker.start()
    seen_before = len(watch.arrivals.seen)
    first_progress = first_serving = 0.0
    new: dict[int, float] = {}
    while len(new) < partitions:
        _, lanes = worker.health()
        now = time.monotonic()
        if not first_progress and any(lane["restored"] for lane in lanes):
            first_progress = now
        if not first_serving and any(lane["state"] == "serving" for lane in lanes):
            first_serving = now
        for at, partition, number in watch.arrivals.seen[seen_before:]:
            if number in schedule.numbers and schedule.intended(number) > killed:
                new.setdefault(partition, at)
        worker.require_alive()
        if now - killed > _PATIENCE_S:
            raise worker.gave_up(f"No new command in every partition {_PATIENCE_S:.0f} s after the kill")
        time.sleep(_POLL_S)
    restore = max(0.0, first_serving - first_progress) if first_progress and first_serving else 0.0
    return Failover(min(new.values()) - killed, max(new.values()) - killed, restore)


def _wait_until_flowing(worker: Worker, watch: EventWatch, schedule: Schedule, partitions: int) -> None:
    """Ready, nothing behind, and every partition has shown a command that was just sent."""
    worker.wait_ready()
    since, deadline = time.monotonic() + _CALM_S, time.monotonic() + _PATIENCE_S
    while True:
        fresh = {
            partition
            for at, partition, number in watch.arrivals.seen[-1000:]
            if at > since and schedule.intended(number) > since
        }
        if len(fresh) == partitions:
            return
        worker.require_alive()
        if time.monotonic() > deadline:
            raise UserError(
                f"Only partitions {sorted(fresh)} flow {_PATIENCE_S:.0f} s after the worker was ready."
            )
        time.sleep(_POLL_S)


def _result(plan: FailoverPlan, found: dict[str, list[Failover]], records: int, sent: int) -> BenchResult:
    firsts = {how: [one.first_s for one in kills] for how, kills in found.items()}
    without = [one.first_s - one.restore_s for one in found[LOST]]
    return BenchResult(
        name="failover",
        how=(
            f"{plan.rate} commands/s into a worker whose changelog has {records:,} records; kill -9, start again at "
            f"once, {plan.repeats} times each with and without its folder. Counted from the kill until the event "
            "of a command that was due after the kill is visible to a read_committed consumer; the start of the "
            "process is included. Afterwards every command had taken effect exactly once."
        ),
        figures=[
            Figure("disk kept, median", median(firsts[KEPT]), "s", _TARGET),
            Figure("disk kept, longest", max(firsts[KEPT]), "s", _TARGET),
            Figure("disk lost, without the restore itself, median", median(without), "s", _TARGET),
            Figure("disk lost, without the restore itself, longest", max(without), "s", _TARGET),
            Figure("disk lost, restore included, median", median(firsts[LOST]), "s"),
        ],
        columns=[
            "",
            "median s",
            "longest s",
            "all partitions, median s",
            "longest s",
            "of it restore, median s",
        ],
        rows=[
            [
                how,
                median(firsts[how]),
                max(firsts[how]),
                median(one.all_s for one in kills),
                max(one.all_s for one in kills),
                median(one.restore_s for one in kills),
            ]
            for how, kills in found.items()
        ],
        checks={"commandsSent": sent, "eachVisibleOnce": True, "changelogRecords": records},
        samples={
            how: [{"firstS": one.first_s, "allS": one.all_s, "restoreS": one.restore_s} for one in kills]
            for how, kills in found.items()
        },
    )
