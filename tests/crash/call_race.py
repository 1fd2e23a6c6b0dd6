"""Claimers that compete for the calls of a few runs while workers are killed; judged by the topics alone.

`python -m tests.crash.call_race --claimers 64 --calls 10000 --kills 20` runs a long one on the broker that
`RUNLANE_BROKERS` names, or on the running local one, and prints what came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.call_results import AwaitResult, ClaimResult
from streams import topic_admin
from streams.broker.local_broker import resolve_brokers
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.settings import Settings
from tests.contract.topic_reader import TopicReader
from tests.crash.call_judge import CallName, Verdict, judge
from tests.crash.history import Place, Row
from tests.worker_process import WorkerProcess

TOPICS = ("run-commands", "replies", "state-changelog")
CLAIMERS_PER_CLIENT = 8
LEASE_MS = 2000
RUNS = 4
PATIENCE_S = 120.0


@dataclass
class Race:
    """What the claimers know of each other: which calls are done, and what they did."""

    calls: list[CallName]
    source: random.Random
    done: set[CallName] = field(default_factory=set)
    did: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def finish(self, call: CallName) -> None:
        """A call has its result."""
        self.done.add(call)
        self.changed.set()

    async def wait_for(self, count: int, worker: WorkerProcess) -> None:
        """Wait until so many calls are done; fails when the worker has died by itself, or nothing gets done."""
        while len(self.done) < count:
            assert worker.alive, worker.explain("nobody here has ended it")
            self.changed.clear()
            async with asyncio.timeout(PATIENCE_S):
                await self.changed.wait()

    def next_call(self) -> CallName | None:
        """One of the calls that others are at, too; None when all are done."""
        while self.calls and self.calls[-1] in self.done:
            self.calls.pop()
        open_calls = self.calls[-self.source.choice([1, 4, 16]) :]
        return self.source.choice(open_calls) if open_calls else None


async def compete(race: Race, client: RunlaneClient, owner: str) -> None:
    """Claim, execute and publish until all calls are done; now and then as one that dies or stands still would."""
    # A command whose answer is lost with its worker is sent again, with the same id.
    options: Any = {"timeout": 5.0, "attempts": 100}
    while (call := race.next_call()) is not None:
        answer: ClaimResult | AwaitResult = await client.claim_call(
            *call, owner, lease_ms=LEASE_MS, **options
        )
        if answer.status == "pending":
            answer = await client.await_call(
                *call, timeout_ms=3000, claim_for=owner, lease_ms=LEASE_MS, timeout=8.0, attempts=100
            )
        race.did[answer.status] += 1
        if answer.status == "hit":
            race.finish(call)
        elif answer.fencing_number is not None:
            await _execute(race, client, call, owner, answer.fencing_number, options)


async def _execute(
    race: Race, client: RunlaneClient, call: CallName, owner: str, fencing: int, options: Any
) -> None:
    chance = race.source.random()
    try:
        if chance < 0.05:
            race.did["died"] += 1
            return
        if chance < 0.10:
            race.did["stood still"] += 1
            await asyncio.sleep(LEASE_MS / 1000 * race.source.uniform(0.9, 1.5))
        elif chance < 0.20:
            for _ in range(3):
                await asyncio.sleep(LEASE_MS / 1000 * 0.4)
                await client.renew_call(*call, fencing, lease_ms=LEASE_MS, **options)
        elif chance < 0.25:
            race.did["gave back"] += 1
            await client.publish_call(*call, fencing, error="busy", on_failure="release", **options)
            return
        else:
            await asyncio.sleep(race.source.uniform(0, 0.05))
        value = {"by": owner, "fencingNumber": fencing}
        await client.publish_call(*call, fencing, value, **options)
        race.did["published"] += 1
        race.finish(call)
    except CommandRefused as refusal:
        if refusal.code != "CALL_FENCED":
            raise
        race.did["fenced"] += 1


async def run_race(
    settings: Settings, worker: WorkerProcess, *, claimers: int, calls: int, kills: int, seed: int
) -> Race:
    """Have them compete, and kill the worker whenever a further share of the calls is done."""
    runs = [f"race-{uuid.uuid4().hex[:8]}" for _ in range(RUNS)]
    names = [(runs[number % RUNS], "tool", f"{number:06}") for number in range(calls)]
    race = Race(list(names), random.Random(seed))
    async with asyncio.TaskGroup() as group:
        clients = []
        for number in range(claimers):
            if number % CLAIMERS_PER_CLIENT == 0:
                clients.append(await RunlaneClient(settings, delivery_timeout_s=None).open())
            group.create_task(compete(race, clients[-1], f"claimer-{number}"))
        for kill in range(kills):
            await race.wait_for(calls * (kill + 1) // (kills + 1), worker)
            worker.kill()
            if kill % 3 == 1:
                worker.lose_state()
            await asyncio.to_thread(worker.start)
        await race.wait_for(calls, worker)
    for client in clients:
        await client.close()
    race.calls = names
    return race


def verdict_of(settings: Settings, calls: list[CallName]) -> Verdict:
    """Read the topics to their ends, and judge."""
    reader = TopicReader(resolve_brokers(settings), {name: settings.name(name) for name in TOPICS})
    try:
        rows = {}
        for topic in TOPICS:
            reader.catch_up(topic, PATIENCE_S)
            rows[topic] = [
                Row(Place(topic, record.partition, record.offset), record.key, record.value)
                for record in reader.records(topic)
            ]
    finally:
        reader.close()
    return judge(rows["run-commands"], rows["replies"], rows["state-changelog"], calls)


def main() -> None:
    """One race, and what came of it, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("claimers", 64), ("calls", 10_000), ("kills", 20), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    settings = Settings(prefix=f"race{uuid.uuid4().hex[:8]}")
    topic_admin.apply(settings)
    with ExitStack() as stack:
        stack.callback(topic_admin.delete, settings)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="race-")))
        worker = stack.enter_context(WorkerProcess(resolve_brokers(settings), settings.prefix, folder))
        worker.start().wait_ready()
        started = time.monotonic()
        race = asyncio.run(run_race(settings, worker, **vars(given)))
        took_s = time.monotonic() - started
        verdict = verdict_of(settings, race.calls)
    print(
        json.dumps(
            {
                **vars(given),
                "seconds": round(took_s, 1),
                "did": race.did,
                "leasesPassedOn": verdict.passed_on,
                "fencedCommands": verdict.fenced,
                "violations": verdict.violations[:20],
            },
            indent=2,
        )
    )
    raise SystemExit(bool(verdict.violations))


if __name__ == "__main__":
    main()
