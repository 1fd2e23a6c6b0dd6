"""Calls that many claim while workers are killed: one live lease at a time, one result each."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams import topic_admin
from streams.settings import Settings
from tests.crash.call_race import run_race, verdict_of
from tests.worker_process import WorkerProcess


@pytest.fixture
def settings(broker: str) -> Iterator[Settings]:
    """Topics of its own."""
    settings = Settings(brokers=broker, prefix=f"race{uuid.uuid4().hex[:8]}")
    topic_admin.apply(settings)
    yield settings
    topic_admin.delete(settings)


def test_claimers_compete_while_the_worker_is_killed(settings: Settings, tmp_path: Path) -> None:
    with WorkerProcess(settings.brokers or "", settings.prefix, tmp_path / "worker") as worker:
        worker.start().wait_ready()
        race = asyncio.run(run_race(settings, worker, claimers=20, calls=500, kills=8, seed=7))
        verdict = verdict_of(settings, race.calls)
        assert worker.terminate() == 0
    assert not verdict.violations, "\n".join(verdict.violations[:20])
    assert len(verdict.stories) == 500
    # Else it has tested little.
    assert verdict.passed_on >= 20
    assert verdict.fenced >= 1
    assert race.did["died"] >= 5
