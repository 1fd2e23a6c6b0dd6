"""Rate limits: permits by commands and by blocks, beside scripts in Redis; and who is served when many wait."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from streams.bench.permit_rates import Applied, Taken, apply_acquires, pipeline_acquires, take_permits
from streams.bench.permit_taker import MAX_BLOCK
from streams.bench.processes import Worker
from streams.bench.rate_fairness import RUNS, places
from streams.bench.redis_server import RedisServer, find_redis
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.workbench import Workbench

MANY, HOT = "runlane, many buckets", "runlane, one bucket"
ALWAYS, EVERYSEC = "Redis script, always", "Redis script, everysec"
CELL = "Redis, GCRA of redis-cell, everysec"
BLOCKS, DIRECT = "runlane, blocks", "runlane, each by a command"


@dataclass(frozen=True)
class RatesPlan:
    """How many acquires are sent before, how long one process takes permits, how many wait."""

    acquires: int = 100_000
    buckets: int = 1000
    seconds: float = 8.0
    rate: float = 200.0
    """Permits per second on a fixed schedule, for the latencies."""
    tasks: int = 64
    waiting: int = 1000
    rounds: int = 3
    redis_server: str | None = None
    """Program to start; None: `redis-server` on PATH."""


def run(bench: Workbench, plan: RatesPlan) -> BenchResult:
    """All contenders in turn, `plan.rounds` times; then the waiting runs."""
    program = find_redis(plan.redis_server)
    applied: dict[str, list[Applied]] = defaultdict(list)
    taken: dict[str, list[Taken]] = defaultdict(list)
    fair: list[list[int]] = []
    with _redis_servers(bench, program) as (always, everysec):
        for number in range(1, plan.rounds + 1):
            name = f"round {number} of {plan.rounds}"
            for contender, buckets in ((MANY, plan.buckets), (HOT, 1)):
                found = apply_acquires(bench, plan.acquires, buckets, f"{name}: {contender}")
                applied[contender].append(found)
            for contender, redis, way in (
                (ALWAYS, always, "windows"),
                (EVERYSEC, everysec, "windows"),
                (CELL, everysec, "cell"),
            ):
                applied[contender].append(pipeline_acquires(redis, way, plan.acquires, plan.buckets))
            bench.step(_told(name, applied))
            pace = (plan.seconds, plan.rate, plan.tasks)
            with bench.site("rates") as (settings, folder), Worker(settings, folder) as worker:
                worker.start().wait_ready()
                servers = [worker.pid, *([bench.broker_pid] if bench.broker_pid is not None else [])]
                for contender, way in ((BLOCKS, "blocks"), (DIRECT, "direct")):
                    taken[contender].append(take_permits(settings, way, servers, plan=pace))
                fair.append(asyncio.run(places(settings, plan.waiting)))
            for contender, redis, way in (
                (ALWAYS, always, "windows"),
                (EVERYSEC, everysec, "windows"),
                (CELL, everysec, "cell"),
            ):
                taken[contender].append(
                    take_permits(bench.settings, way, [redis.pid], plan=pace, port=redis.port)
                )
            bench.step(f"{_told(name, taken)}; the ten were served at {fair[-1]}")
    return _result(plan, applied, taken, fair)


@contextmanager
def _redis_servers(bench: Workbench, program: str) -> Iterator[tuple[RedisServer, RedisServer]]:
    with ExitStack() as stack:
        yield (
            stack.enter_context(RedisServer(program, bench.folder / "redis-always", "always"))
            .start()
            .wait_ready(),
            stack.enter_context(RedisServer(program, bench.folder / "redis", "everysec"))
            .start()
            .wait_ready(),
        )


def _told(name: str, found: dict[str, list[Any]]) -> str:
    return f"{name}: " + ", ".join(f"{who} {each[-1].per_second:,.0f}/s" for who, each in found.items())


def _result(
    plan: RatesPlan, applied: dict[str, list[Applied]], taken: dict[str, list[Taken]], fair: list[list[int]]
) -> BenchResult:
    def ratio(ours: list[float], theirs: list[float]) -> float:
        return median(a / b for a, b in zip(ours, theirs, strict=True))

    direct = {who: [one.per_second for one in found] for who, found in applied.items()}
    per_core = {who: [one.per_core_second for one in found] for who, found in taken.items()}
    last = max(max(found) for found in fair)
    return BenchResult(
        name="rates",
        how=(
            "Two rules for every permit, a window of a minute and a sliding one of an hour, which never fill. "
            f"Many: {plan.acquires:,} preloaded rate.acquire to {plan.buckets:,} buckets (or one), each answered, "
            "from the first visible answer to the last; by the scripts in Redis as many, 100 in each round trip. "
            f"One process: {plan.tasks} tasks take permits of one bucket for {plan.seconds:.0f} s, from blocks "
            f"(RateLimiter, at most {MAX_BLOCK:,} permits in one) or each by a command or script; then "
            f"{plan.rate:.0f} a second on a schedule, from when each was due. CPU is that of the processes: worker "
            "and broker, or Redis; and the client. Per core: permits for each second of processor time of all of "
            "these. `always`, `everysec`: Redis' appendfsync; runlane's broker has one replica and leaves it to "
            "the system when to write to the disk. The script charges both rules or none; redis-cell's algorithm "
            f"knows one rule. {plan.rounds} rounds in turn, medians. Fairness: ten runs begin to wait behind one "
            f"with {plan.waiting:,} waiting commands."
        ),
        figures=[
            Figure("many buckets, preloaded", median(direct[MANY]), "permits/s", Target("at least", 15_000)),
            Figure(
                "many buckets, against Redis with appendfsync always",
                ratio(direct[MANY], direct[ALWAYS]),
                "x",
                Target("at least", 1),
            ),
            Figure("one bucket, preloaded", median(direct[HOT]), "permits/s", Target("at least", 5000)),
            *(
                Figure(
                    f"blocks, against {theirs}, per core",
                    ratio(per_core[BLOCKS], per_core[theirs]),
                    "x",
                    Target("at least", 5),
                )
                for theirs in (ALWAYS, EVERYSEC, CELL)
            ),
            Figure(f"last of the {RUNS} runs served at", last, "th", Target("at most", RUNS + 1)),
        ],
        columns=["", "permits/s", "servers' CPU, us", "client's CPU, us", "per core", "p50 ms", "p99 ms"],
        rows=[
            *(
                [
                    f"many at once: {who}",
                    median(direct[who]),
                    median(one.server_us for one in found),
                    "sent before"
                    if found[0].client_us is None
                    else median(one.client_us or 0 for one in found),
                    "",
                    "",
                    "",
                ]
                for who, found in applied.items()
            ),
            *(
                [
                    f"one process: {who}",
                    *(
                        median(getattr(one, part) for one in found)
                        for part in (
                            "per_second",
                            "server_us",
                            "client_us",
                            "per_core_second",
                            "p50_ms",
                            "p99_ms",
                        )
                    ),
                ]
                for who, found in taken.items()
            ),
        ],
        checks={"everyPermitGranted": True, "servedAt": fair},
        samples={
            "manyAtOnce": {who: [asdict(one) for one in found] for who, found in applied.items()},
            "oneProcess": {who: [asdict(one) for one in found] for who, found in taken.items()},
        },
    )
