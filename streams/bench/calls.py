"""Calls: how long claim, publish and hit take to be answered, and how fast a mixed set of commands is applied."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from streams.bench.applying import Applied, apply
from streams.bench.latency import percentiles
from streams.bench.processes import Worker
from streams.bench.report import BenchResult, Figure, Target
from streams.bench.run_lives import append_events, call, mixed
from streams.bench.workbench import Workbench
from streams.client import RunlaneClient
from streams.settings import Settings
from streams.user_errors import UserError

_RUNS = 2000
_MIXED_PER_RUN = 16
_CYCLE = "the three of them"
_KINDS = ("call.claim", "call.publish", "call.claim, hit", _CYCLE)


@dataclass(frozen=True)
class CallsPlan:
    """How many calls a second and for how long; how many commands of each set are applied, how often."""

    rate: int = 100
    warmup_s: float = 90.0
    """Before the first round: until the broker's compiler is done, which halves its processor time for a call."""
    lead_s: float = 5.0
    """At the begin of each round, not measured: its client is new."""
    seconds: float = 20.0
    commands: int = 64_000
    rounds: int = 3


def run(bench: Workbench, plan: CallsPlan) -> BenchResult:
    """First the two sets of commands in turn, then the answers on a worker that is idle otherwise."""
    found: dict[str, list[list[float]]] = defaultdict(list)
    measured = 0
    rates: dict[str, list[Applied]] = defaultdict(list)
    with bench.site("calls") as (settings, folder), Worker(settings, folder) as worker:
        worker.start().wait_ready()
        runs = plan.commands // _MIXED_PER_RUN
        for number in range(plan.rounds):
            first = (number + 1) * 1_000_000
            name = f"round {number + 1} of {plan.rounds}"
            for kind, series in (
                ("mixed", mixed(range(first, first + runs))),
                # As many runs, and as many commands for each.
                (
                    "events.append",
                    append_events(range(first + runs, first + 2 * runs), range(_MIXED_PER_RUN)),
                ),
            ):
                rates[kind].append(apply(bench, settings, worker, series, f"{name}: {kind}"))
            bench.step(
                f"{name}: "
                + ", ".join(f"{kind} {done[-1].per_second:,.0f}/s" for kind, done in rates.items())
            )
        calls = _Calls(settings, plan.rate)
        with bench.bar(f"warming up: {plan.rate:,} calls/s", plan.warmup_s) as progress:
            asyncio.run(calls.make(plan.warmup_s, 0, progress))
        for number in range(plan.rounds):
            with bench.bar(
                f"round {number + 1} of {plan.rounds}: {plan.rate:,} calls/s", plan.lead_s + plan.seconds
            ) as progress:
                latencies = asyncio.run(calls.make(plan.lead_s, plan.seconds, progress))
            measured += len(latencies[_CYCLE])
            for kind in _KINDS:
                found[kind].append(percentiles(latencies[kind]))
            p50 = {kind: found[kind][-1][0] for kind in _KINDS}
            bench.step(", ".join(f"{kind}: p50 {value:.1f} ms" for kind, value in p50.items()))
    return _result(plan, found, rates, measured)


class _Calls:
    """Calls on a fixed schedule, each of its own."""

    def __init__(self, settings: Settings, rate: int) -> None:
        """`rate`: how many a second."""
        self._settings = settings
        self._rate = rate
        self._made = 0

    async def make(
        self, lead_s: float, seconds: float, progress: Callable[[float], None]
    ) -> dict[str, list[float]]:
        """Make calls by a new client; per kind of command the time to its answer, in ms, after `lead_s` seconds."""
        latencies: dict[str, list[float]] = defaultdict(list)
        total = round((lead_s + seconds) * self._rate)
        first, self._made = self._made, self._made + total

        async with RunlaneClient(self._settings) as client:
            began = time.monotonic() + 0.1

            async def cycle(number: int) -> None:
                due = began + number / self._rate
                times = await _call_once(client, first + number, due)
                if due >= began + lead_s:
                    took = [(end - begin) * 1000 for begin, end in pairwise(times)]
                    for kind, ms in zip(_KINDS, [*took, (times[-1] - due) * 1000], strict=True):
                        latencies[kind].append(ms)

            async with asyncio.TaskGroup() as group:
                for number in range(total):
                    await asyncio.sleep(max(0.0, began + number / self._rate - time.monotonic()))
                    group.create_task(cycle(number))
                    progress(number / self._rate)
        return latencies


async def _call_once(client: RunlaneClient, number: int, due: float) -> list[float]:
    """Claim, publish, and claim again; `due`, and when each was answered."""
    run_id = f"called-{number % _RUNS:06d}"
    tool_id, input_hash = call(number).values()
    claimed = await client.claim_call(run_id, tool_id, input_hash, "host:1")
    times = [due, time.monotonic()]
    if claimed.fencing_number is None:
        raise UserError(f"A call of its own was answered {claimed.status}.")
    await client.publish_call(run_id, tool_id, input_hash, claimed.fencing_number, {"rows": number})
    times.append(time.monotonic())
    hit = await client.claim_call(run_id, tool_id, input_hash, "host:2")
    times.append(time.monotonic())
    if hit.status != "hit" or hit.value != {"rows": number}:
        raise UserError(f"A published call was answered {hit.status}.")
    return times


def _result(
    plan: CallsPlan, found: dict[str, list[list[float]]], rates: dict[str, list[Applied]], measured: int
) -> BenchResult:
    typical = {
        kind: [median(column) for column in zip(*rounds, strict=True)] for kind, rounds in found.items()
    }
    shares = [
        ours.per_second / theirs.per_second * 100
        for ours, theirs in zip(rates["mixed"], rates["events.append"], strict=True)
    ]
    slowest = max(typical[kind][0] for kind in _KINDS if kind != _CYCLE)
    return BenchResult(
        name="calls",
        how=(
            f"{plan.rate:,} calls a second on a fixed schedule, each claimed, published, and claimed again (a hit) by "
            f"one client in one process, {plan.rounds} rounds of {plan.seconds:.0f} s after {plan.warmup_s:.0f} s of "
            "warm-up, medians of the rounds: from when a command was due to its answer. Before that, "
            f"{plan.commands:,} commands of whole lives of runs (launch, submit, instance, two steps of an executor, "
            "trace, signal, end), and as many events.append to as many runs, in turn, from when the first is sent. "
            "Client, worker and broker share the machine."
        ),
        figures=[
            Figure("slowest of the three commands, p50", slowest, "ms", Target("at most", 12)),
            Figure("the three of them, one after another, p50", typical[_CYCLE][0], "ms"),
            Figure("mixed set", median(one.per_second for one in rates["mixed"]), "commands/s"),
            Figure("events.append", median(one.per_second for one in rates["events.append"]), "commands/s"),
            Figure("mixed set against events.append", median(shares), "%", Target("at least", 60)),
        ],
        columns=["command", "p50 ms", "p90 ms", "p99 ms", "max ms"],
        rows=[[kind, *typical[kind]] for kind in _KINDS],
        checks={"callsMeasured": measured, "eachExecutedOnce": True},
        samples={
            "p50p90p99max": dict(found),
            "commandsPerSecond": {kind: [one.per_second for one in done] for kind, done in rates.items()},
            "cpuUs": {kind: [one.cpu_us for one in done] for kind, done in rates.items()},
        },
    )
