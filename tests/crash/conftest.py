"""Trials on the session's broker, each with topics of its own."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streams import topic_admin
from streams.settings import Settings
from tests.crash.trial import Trial

PARTITIONS = 4

StartTrial = Callable[..., Trial]


@pytest.fixture
def start_trial(broker: str, tmp_path: Path) -> Iterator[StartTrial]:
    """Make a trial with its topics, without workers; its load is not started."""
    made: list[tuple[Trial, Settings]] = []

    def start(*, per_second: int, seed: int) -> Trial:
        settings = Settings(brokers=broker, prefix=f"crash{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
        topic_admin.apply(settings)
        trial = Trial(broker, settings.prefix, PARTITIONS, tmp_path, per_second=per_second, seed=seed)
        made.append((trial, settings))
        return trial

    yield start
    for trial, settings in made:
        trial.close()
        topic_admin.delete(settings)
