"""What a worker's metrics page says of rate buckets."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from schemas.rate_rules import RateRule
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.settings import Settings
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

HOUR_MS = 3_600_000
RULES = [RateRule(rule_id="r", requests_per_window=10, window_ms=HOUR_MS)]
LONG_NAME = "org:" + "x" * 100


def counted(worker: WorkerProcess) -> dict[str, dict[str, float]]:
    """By label of the bucket: metric, without what all have in common, and number."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(worker.get("/metrics")[1]):
        for sample in family.samples:
            if sample.name.startswith("runlane_rate_") and sample.name.endswith("_total"):
                name = sample.name.removeprefix("runlane_rate_").removesuffix("_total")
                found.setdefault(sample.labels["bucket"], {})[name] = sample.value
    return found


async def test_buckets_are_counted_by_what_was_committed_and_only_the_first_have_labels(
    settings: Settings, tmp_path: Path
) -> None:
    own = {"RUNLANE_RATE_METRICS_BUCKETS": "2"}
    with WorkerProcess(settings.brokers or "", settings.prefix, tmp_path / "worker", settings=own) as worker:
        worker.start().wait_ready()
        async with RunlaneClient(settings) as client:
            for _ in range(2):
                await client.acquire_permits("first", RULES, requested=4, command_id="sent twice")
            lost = await client.lease_permits("first", RULES, requested=3, lease_ms=1000)
            assert (await client.acquire_permits("first", RULES, requested=9)).granted == 3
            assert (await client.acquire_permits("first", RULES)).granted == 0
            assert (await client.acquire_permits("first", RULES, timeout_ms=50)).granted == 0
            await client.penalize("first", 60_000)
            await client.penalize("first", 10)

            full = [RateRule(rule_id="r", requests_per_window=1, window_ms=300)]
            await client.acquire_permits("second", full)
            assert (await client.acquire_permits("second", full, timeout_ms=60_000)).granted == 1

            await client.acquire_permits("third", RULES, requested=5)
            await client.acquire_permits(LONG_NAME, RULES, requested=2)
            with pytest.raises(CommandRefused, match="RATE_NEVER_GRANTED"):
                await client.acquire_permits("fourth", RULES, requested=11, minimum=11)
            assert lost.granted == 3
        expected = {
            "first": {
                "permits_granted": 10,
                "refused": 2,
                "waits": 1,
                "penalties": 1,
                "leases_expired": 1,
                "permits_lost": 3,
            },
            "second": {"permits_granted": 2, "waits": 1, "waits_served": 1},
            "other": {"permits_granted": 7, "refused": 1},
        }
        # The block expires, and an answer may come a moment before what it tells of is counted.
        wait_until(lambda: counted(worker) == expected, "all is counted")


async def test_a_long_name_is_never_a_label(settings: Settings, tmp_path: Path) -> None:
    with WorkerProcess(settings.brokers or "", settings.prefix, tmp_path / "worker") as worker:
        worker.start().wait_ready()
        async with RunlaneClient(settings) as client:
            await client.acquire_permits(LONG_NAME, RULES, requested=2)
            await client.acquire_permits(LONG_NAME[:100], RULES, requested=3)
        expected = {"other": {"permits_granted": 2}, LONG_NAME[:100]: {"permits_granted": 3}}
        wait_until(lambda: counted(worker) == expected, "both are counted")
