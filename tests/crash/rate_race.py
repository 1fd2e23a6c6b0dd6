"""Clients that compete for permits while they, the worker and the broker are killed; judged by the topics alone.

`python -m tests.crash.rate_race --kills 200 --seed 1` runs a long one on a broker of its own, and prints what came
of it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from streams import topic_admin
from streams.broker import local_broker
from streams.child_process import ChildProcess
from streams.settings import Settings
from tests.contract.topic_reader import TopicReader
from tests.crash.history import Place, Row
from tests.crash.rate_client import LEASE_MS, NOTE, WAIT_MS
from tests.crash.rate_judge import Verdict, judge
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

TOPICS = ("rate-commands", "replies", "state-changelog")
CLIENTS = 3
PATIENCE_S = 120.0
_PROGRESS = 15
"""So many grants are seen after each kill, before the next one."""


@dataclass
class Site:
    """A broker, a worker and clients, each of which can be killed."""

    settings: Settings
    worker: WorkerProcess
    clients: list[ChildProcess]
    kills: Counter[str] = field(default_factory=Counter)

    def grants(self, clients: list[ChildProcess]) -> int:
        """How many grants these clients have told of so far."""
        return sum(client.log_file.read_bytes().count(NOTE.encode()) for client in clients)

    def wait_for_grants(self, clients: list[ChildProcess]) -> None:
        """Wait until these clients have got some more."""
        target = self.grants(clients) + _PROGRESS
        wait_until(lambda: self.grants(clients) >= target, f"{_PROGRESS} more grants", PATIENCE_S)

    def kill_worker(self) -> None:
        """End the worker and start it again."""
        self.kills["worker"] += 1
        self.worker.kill()
        self.worker.start()

    def kill_worker_and_state(self) -> None:
        """End the worker and start it again without its stores."""
        self.kills["worker, with its state"] += 1
        self.worker.kill()
        self.worker.lose_state()
        self.worker.start()

    def kill_client(self) -> None:
        """End the client that has run longest, with its blocks and leases; another one takes its place."""
        self.kills["client"] += 1
        client = self.clients.pop(0)
        client.kill()
        self.clients.append(client.start())

    def kill_broker(self) -> None:
        """End the broker and start it again."""
        self.kills["broker"] += 1
        local_broker.kill(self.settings)
        local_broker.up(self.settings)


@contextmanager
def race_site(seed: int) -> Iterator[Site]:
    """A site with everything running."""
    folder = Path(tempfile.mkdtemp(prefix="rate-race-"))
    own = Settings(brokers=None, broker_dir=folder / "broker", prefix=f"race{uuid.uuid4().hex[:8]}")
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(local_broker.remove, own)
        address = local_broker.up(own).address
        topic_admin.apply(own.model_copy(update={"brokers": address}))
        worker = stack.enter_context(WorkerProcess(address, own.prefix, folder / "worker"))
        worker.start().wait_ready()
        environment = {
            "RUNLANE_BROKERS": address,
            "RUNLANE_PREFIX": own.prefix,
            "RUNLANE_COMMAND_TIMEOUT_S": "5",
        }
        clients = []
        for number in range(CLIENTS):
            command = [sys.executable, "-m", "tests.crash.rate_client", str(seed + number)]
            client = ChildProcess(f"client-{number}", command, folder, environment)
            # By SIGKILL: it has no other end.
            stack.callback(client.end_at_once)
            clients.append(client.start())
        yield Site(own.model_copy(update={"brokers": None}), worker, clients)


def run_race(site: Site, *, kills: int, seed: int, step: Callable[[str], None] = lambda line: None) -> None:
    """Kill one to three, wait for new grants, and so on; at the end all clients, and wait until all has ended."""
    source = random.Random(seed)
    ways = [site.kill_worker] * 3 + [site.kill_worker_and_state] + [site.kill_client] * 3 + [site.kill_broker]
    site.wait_for_grants(site.clients)
    turn: list[Callable[[], None]] = []
    while (left := kills - site.kills.total()) > 0:
        for _ in range(min(left, source.choice([1, 2, 3]))):
            turn = turn or source.sample(ways, len(ways))
            time.sleep(source.uniform(0, 0.3))
            turn.pop()()
        for client in site.clients:
            client.require_alive()
        # Who was started last is a client's successor, if one was killed.
        site.wait_for_grants(site.clients[-1:])
        assert site.worker.alive, site.worker.explain("nobody here has ended it")
        step(f"{site.kills.total()} of {kills} kills, {site.grants(site.clients):,} grants told of")
    for client in site.clients:
        client.kill()
    # What they held runs out, and what waits ends.
    time.sleep((LEASE_MS + WAIT_MS) / 1000)


def verdict_of(site: Site) -> Verdict:
    """Read the topics to their ends, and judge."""
    address = local_broker.up(site.settings).address
    reader = TopicReader(address, {name: site.settings.name(name) for name in TOPICS})
    try:
        rows: dict[str, list[tuple[int, Row]]] = {}
        for topic in TOPICS:
            reader.catch_up(topic, PATIENCE_S)
            rows[topic] = [
                (
                    record.timestamp,
                    Row(Place(topic, record.partition, record.offset), record.key, record.value),
                )
                for record in reader.records(topic)
            ]
    finally:
        reader.close()
    replies, changelog = ([row for _, row in rows[topic]] for topic in ("replies", "state-changelog"))
    return judge(rows["rate-commands"], replies, changelog)


def settled(site: Site) -> Verdict:
    """The verdict once every command is answered and every lease has ended, or the last one there was."""
    verdict = verdict_of(site)
    for _ in range(10):
        if not verdict.violations:
            break
        time.sleep(1)
        verdict = verdict_of(site)
    return verdict


def main() -> None:
    """One race, and what came of it, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    started = time.monotonic()
    with race_site(given.seed) as site:
        run_race(site, kills=given.kills, seed=given.seed, step=lambda line: print(line, file=sys.stderr))
        verdict = settled(site)
    blocks = sum(grant.is_block for grant in verdict.grants)
    print(
        json.dumps(
            {
                **vars(given),
                "seconds": round(time.monotonic() - started),
                "killed": site.kills,
                "grants": len(verdict.grants),
                "permits": verdict.permits,
                "blocks": blocks,
                "blocksThatRanOut": verdict.lost_blocks,
                "fullest": {
                    f"{bucket} {rule.rule_id}": f"{most} of {rule.permits}"
                    for (bucket, rule), most in sorted(verdict.fullest.items())
                },
                "mostInLeases": {
                    f"{bucket} {rule.rule_id}": f"{most} of {rule.concurrency}"
                    for (bucket, rule), most in sorted(verdict.most_held.items())
                },
                "violations": verdict.violations[:20],
            },
            indent=2,
        )
    )
    raise SystemExit(bool(verdict.violations))


if __name__ == "__main__":
    main()
