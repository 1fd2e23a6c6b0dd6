"""How fast permits are taken: by preloaded commands and pipelines, and by one process that asks for each."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from schemas.topics import RATE_COMMANDS, REPLIES
from streams.bench import redis_limits
from streams.bench.latency import percentiles
from streams.bench.processes import Worker, cpu_seconds_of
from streams.bench.rate_commands import RULES, Acquires, bucket_id
from streams.bench.redis_server import RedisServer
from streams.bench.visible_output import rate, read_records, sample_until
from streams.bench.workbench import Workbench
from streams.bench.workload import preload
from streams.messaging.kafka_security import security_environment
from streams.messaging.topic_positions import Positions
from streams.settings import Settings
from streams.user_errors import UserError

_REPLY_TO = [("reply-partition", b"0"), ("correlation-id", b"bench")]
_PIPELINE = 100
_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Applied:
    """Acquires that were decided, as fast as they came."""

    per_second: float
    server_us: float
    """Processor time of the servers for each, in microseconds."""
    client_us: float | None
    """That of the client; None: all were sent before."""
    broker_us: float = 0.0
    """Of that of the servers, the broker's."""


@dataclass(frozen=True)
class Taken:
    """Permits that one process took, each by itself."""

    per_second: float
    server_us: float
    """Processor time of the servers for each, in microseconds."""
    client_us: float
    """That of the process."""
    p50_ms: float
    """On a fixed schedule."""
    p99_ms: float

    @property
    def per_core_second(self) -> float:
        """Permits for each second of a core, servers and client together."""
        return 1e6 / (self.server_us + self.client_us)


def apply_acquires(bench: Workbench, commands: int, buckets: int, what: str) -> Applied:
    """A worker over preloaded commands, from the first visible answer to the last; all must be granted."""
    series = Acquires(commands, buckets)
    with bench.site("rates") as (settings, folder):
        with bench.bar(f"{what}: sending {commands:,} commands", commands) as progress:
            preload(settings, series, progress, to=RATE_COMMANDS.name, headers=_REPLY_TO)
        positions, topic = bench.positions(), settings.name(REPLIES.name)
        ends = positions.ends(settings.name(RATE_COMMANDS.name), bench.partitions)
        with (
            bench.bar(f"{what}: applying {commands:,} commands", commands) as progress,
            Worker(settings, folder) as worker,
        ):

            def is_done(visible: Positions) -> bool:
                if sum(visible.values()) < commands or not worker.has_done(ends, RATE_COMMANDS.name):
                    return False
                return positions.ends(topic, bench.partitions) == visible

            samples = sample_until(
                [worker], bench.broker_pid, positions, topic, bench.partitions, is_done, progress
            )
        records = read_records(settings, topic, bench.partitions)
    granted = [orjson.loads(value)["result"]["granted"] for part in records.values() for _, value in part]
    if granted != [1] * commands:
        raise UserError(
            f"{sum(granted):,} permits were granted by {len(granted):,} of {commands:,} commands."
        )
    found = rate(samples, records)
    return Applied(found.per_second, found.cpu_us + found.broker_cpu_us, None, found.broker_cpu_us)


def pipeline_acquires(redis: RedisServer, way: str, commands: int, buckets: int) -> Applied:
    """As many by a script in Redis, 100 in each round trip of one connection."""
    from redis import Redis

    script, arguments = {
        "windows": (redis_limits.WINDOWS, redis_limits.windows_arguments(RULES)),
        "cell": (redis_limits.CELL, redis_limits.cell_arguments(RULES)),
    }[way]
    names = [f"{way}:{bucket_id(number)}" for number in range(buckets)]
    granted = 0
    with Redis(port=redis.port) as client:
        digest = client.script_load(script)
        began, own, its = time.monotonic(), time.process_time(), cpu_seconds_of(redis.pid)
        for first in range(0, commands, _PIPELINE):
            pipeline: Any = client.pipeline(transaction=False)
            for number in range(first, min(first + _PIPELINE, commands)):
                pipeline.evalsha(digest, 1, names[number % buckets], *arguments)
            granted += sum(answer[0] for answer in pipeline.execute())
        took = time.monotonic() - began
        own, its = time.process_time() - own, cpu_seconds_of(redis.pid) - its
    if granted != commands:
        raise UserError(f"Redis granted {granted:,} of {commands:,} permits.")
    return Applied(commands / took, its / commands * 1e6, own / commands * 1e6)


def take_permits(
    settings: Settings, way: str, servers: Sequence[int], *, plan: tuple[float, float, int], port: int = 0
) -> Taken:
    """Let a process take permits in one way. `plan`: seconds, rate of the schedule, tasks; `servers` by process id."""
    command = [sys.executable, "-m", "streams.bench.permit_taker", way, *map(str, (*plan, port, *servers))]
    environment = {
        **os.environ,
        **security_environment(settings),
        "RUNLANE_BROKERS": settings.brokers or "",
        "RUNLANE_PREFIX": settings.prefix,
        "RUNLANE_PARTITIONS": str(settings.partitions),
    }
    done = subprocess.run(command, env=environment, capture_output=True, timeout=_PATIENCE_S, check=False)
    if done.returncode:
        raise UserError(f"The process that takes permits failed: {done.stderr.decode()[-1000:]}")
    told = orjson.loads(done.stdout)
    taken, (p50, _, p99, _) = told["taken"], percentiles(told["waitedMs"])
    return Taken(
        per_second=taken / told["seconds"],
        server_us=told["serverCpu"] / taken * 1e6,
        client_us=told["cpu"] / taken * 1e6,
        p50_ms=p50,
        p99_ms=p99,
    )
