"""Limiters on a real broker, with a worker that is killed: calls never exceed the rule, and go on."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.rate_rules import RateRule
from streams import topic_admin
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.rate_limiting.limiter import RateLimiter
from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from tests.integration.command_line import CommandLine, interrupt, next_json
from tests.worker_process import WorkerProcess

PATIENCE_S = 120
PERMITS, WINDOW_MS = 20, 400


@pytest.fixture(scope="module")
def settings(broker: str) -> Iterator[Settings]:
    prefix = f"l{uuid.uuid4().hex[:10]}"
    settings = Settings(brokers=broker, prefix=prefix, command_timeout_s=PATIENCE_S, session_timeout_ms=6000)
    topic_admin.apply(settings)
    yield settings
    topic_admin.delete(settings)


@pytest.fixture(scope="module")
def worker(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with WorkerProcess(str(settings.brokers), settings.prefix, tmp_path_factory.mktemp("worker")) as process:
        process.start().wait_ready()
        yield process


async def test_two_limiters_never_exceed_the_rule_while_the_worker_is_killed(
    settings: Settings, worker: WorkerProcess
) -> None:
    rule = RateRule(rule_id="r", requests_per_window=PERMITS, window_ms=WINDOW_MS, kind="sliding")
    calls: list[float] = []
    loop, busy = asyncio.get_running_loop(), asyncio.Event()

    async def call_until(limiter: RateLimiter, count: int) -> None:
        while len(calls) < count:
            async with limiter.permit():
                calls.append(loop.time())
            if len(calls) > 80:
                busy.set()

    async with RunlaneClient(settings) as client, RunlaneClient(settings) as other:
        bucket = f"org:{uuid.uuid4()}"
        async with (
            RateLimiter(client, bucket, [rule], run_id="a", block_s=1) as first,
            RateLimiter(other, bucket, [rule], run_id="b", block_s=1) as second,
        ):

            async def work(count: int) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.gather(
                        *(call_until(limiter, count) for limiter in (first, second) for _ in range(3))
                    )

            await work(60)
            working = asyncio.create_task(work(160))
            await busy.wait()
            await asyncio.to_thread(worker.kill)
            await asyncio.to_thread(lambda: worker.start().wait_ready())
            await working
        seen = await client.peek_permits(bucket, [rule])
        assert (seen.waiting, seen.leases) == (0, 0)
    span = WINDOW_MS / 1000 - 0.001
    for begin in calls:
        assert sum(begin <= at < begin + span for at in calls) <= PERMITS


async def test_a_call_keeps_its_lease_until_its_process_is_killed(
    settings: Settings, worker: WorkerProcess
) -> None:
    bucket, lease_s = f"org:{uuid.uuid4()}", 2.0
    rule = RateRule(rule_id="r", requests_per_window=1000, window_ms=1000, max_concurrency=1)
    async with RunlaneClient(settings) as client:
        await client.put_rate_rules(bucket, [rule])
        arguments = (str(settings.brokers), settings.prefix, bucket, str(lease_s))
        holder = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.integration.permit_holder",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert holder.stdout is not None
            async with asyncio.timeout(PATIENCE_S):
                assert await holder.stdout.readline() == b"held\n"
            # Longer than several leases, by the bucket's own time.
            told = await client.acquire_permits(bucket, timeout_ms=int(5 * lease_s * 1000))
            assert told.granted == 0
            assert (await client.peek_permits(bucket)).leases == 1
        finally:
            holder.kill()
            await holder.wait()
        async with asyncio.timeout(PATIENCE_S), RateLimiter(client, bucket) as limiter, limiter.permit():
            assert (await client.peek_permits(bucket)).leases == 1


def test_the_commands_have_methods_without_async_too(settings: Settings, worker: WorkerProcess) -> None:
    bucket = f"org:{uuid.uuid4()}"
    rules = [RateRule(rule_id="r", requests_per_window=5, window_ms=3_600_000, max_concurrency=4)]
    with RunlaneSyncClient(settings) as client:
        assert client.put_rate_rules(bucket, rules).version == 1
        lease = client.acquire_permits(bucket, requested=3)
        assert lease.lease_id is not None
        assert lease.fencing_number is not None
        assert client.peek_permits(bucket).rules[0].held == 3
        assert client.release_lease(bucket, lease.lease_id, lease.fencing_number).released
        block = client.lease_permits(bucket, requested=9)
        assert block.granted == 2
        assert client.settle_permits(bucket, 1, lease_id=block.lease_id).refunded == 1
        assert client.penalize(bucket, 60_000).cooldown_until > 0
        waiting = client.acquire_permits(bucket, timeout_ms=200)
        assert waiting.granted == 0
        with pytest.raises(CommandRefused, match="RATE_RULES_CHANGED"):
            client.put_rate_rules(bucket, [], expected_version=7)
        (stored,) = client.get_rate_rules(bucket).rules
        assert (stored.requests_per_window, stored.max_concurrency) == (5, 4)


def test_rules_are_applied_from_a_file_and_buckets_shown(
    settings: Settings, worker: WorkerProcess, tmp_path: Path
) -> None:
    cli, bucket = CommandLine(str(settings.brokers), settings.prefix), f"org:{uuid.uuid4()}"
    file = tmp_path / "rules.yaml"
    rule = "{ruleId: rpm, requestsPerWindow: 5, windowMs: 3600000, kind: sliding, maxConcurrency: 9}"
    file.write_text(f"buckets:\n  {bucket}:\n    - {rule}\n")
    assert cli.json("rates", "apply", str(file), "--check") == {"buckets": 1, "applied": []}
    applied = cli.json("rates", "apply", str(file))["applied"]
    assert applied == [{"bucketId": bucket, "version": 1, "changed": True}]
    assert "as before" in cli("rates", "apply", str(file))
    stored = {
        "ruleId": "rpm",
        "kind": "sliding",
        "windowMs": 3_600_000,
        "requestsPerWindow": 5,
        "maxConcurrency": 9,
    }
    assert cli.json("rates", "rules", bucket)["rules"] == [stored]
    assert "sliding" in cli("rates", "rules", bucket)
    with RunlaneSyncClient(settings) as client:
        assert client.acquire_permits(bucket, requested=9).granted == 5
    seen = cli.json("rates", "show", bucket)
    assert (seen["granted"], seen["leases"], seen["rules"][0]["used"]) == (0, 1, 5)
    assert "5 of 9" in cli("rates", "show", bucket)
    assert "commands have to name rules" in cli("rates", "show", f"{bucket}-unknown")
    with cli.following("rates", "show", bucket, "--watch", "--json") as watching:
        assert next_json(watching)["rules"] == next_json(watching)["rules"]
        assert interrupt(watching)[0] == 130
    file.write_text(f"buckets:\n  {bucket}:\n    - {{ruleId: rpm, requestsPerWindow: 0, windowMs: 1}}\n")
    refused = cli.error("rates", "apply", str(file), code=2)
    assert "line 3:" in refused["message"]
    assert "requestsPerWindow" in refused["message"]
    assert "cannot be read" in cli.errors("rates", "apply", str(tmp_path / "none.yaml"), code=2)


def test_a_verification_finds_nothing_wrong_with_all_of_this(
    settings: Settings, worker: WorkerProcess
) -> None:
    report = CommandLine(str(settings.brokers), settings.prefix).json("verify")
    assert report["violations"] == []
    checked = {rule["rule"]: rule["checked"] for rule in report["rules"]}
    assert min(checked[name] for name in ("bucket", "permits", "lease")) >= 3
