"""Fixtures of all tests: one real Kafka broker for the session, and settings with topics of their own."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

from streams import topic_admin
from streams.broker import local_broker
from streams.settings import Settings

MakeSettings = Callable[..., Settings]

# No time limit per example, since the machine may be busy. `pytest tests/fuzz --hypothesis-profile=long` looks longer.
hypothesis_settings.register_profile(
    "runlane", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
hypothesis_settings.register_profile("long", hypothesis_settings.get_profile("runlane"), max_examples=20_000)
hypothesis_settings.load_profile("runlane")

# Brokers live for minutes here: Java's second compiler would take more time than its code saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

LONGEST = (
    "crash/test_torture.py",
    "simulation/test_schedules.py",
    "integration/test_newcomer.py",
    "crash/test_calls_claimed_under_kills.py",
    "crash/test_permits_under_kills.py",
    "crash/test_verify_under_load.py",
    "simulation/test_mutations.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes minutes comes first, so that all processes end at about the same time."""
    ranks = {Path(__file__).parent / file: rank for rank, file in enumerate(LONGEST)}
    for file in ranks:
        if not file.is_file():
            raise pytest.UsageError(f"{file}, one of the longest tests, is not there")
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(scope="session", autouse=True)
def _own_settings_only() -> None:
    """Tests see no settings of the person who runs them, but for the brokers to use."""
    for name in list(os.environ):
        if name.startswith("RUNLANE_") and name != "RUNLANE_BROKERS":
            del os.environ[name]
    os.environ["RUNLANE_CONFIG"] = os.devnull


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a real broker: that of RUNLANE_BROKERS, else a local one for this session."""
    if given := os.environ.get("RUNLANE_BROKERS"):
        yield given
        return
    settings = Settings(brokers=None, broker_dir=tmp_path_factory.mktemp("broker"))
    try:
        yield local_broker.up(settings).address
    finally:
        local_broker.remove(settings)


@pytest.fixture
def make_settings(broker: str, tmp_path: Path) -> Iterator[MakeSettings]:
    """Make settings with a prefix and a data folder of their own, topics applied; deletes the topics after.

    `make_settings(apply_topics=False, partitions=2, ...)`: any setting may be given.
    """
    made: list[Settings] = []

    def make(*, apply_topics: bool = True, **overrides: Any) -> Settings:
        prefix = f"t{uuid.uuid4().hex[:10]}"
        defaults: dict[str, Any] = {
            "brokers": broker,
            "prefix": prefix,
            "data_dir": tmp_path / prefix,
            "web_port": 0,
        }
        settings = Settings(**{**defaults, **overrides})
        made.append(settings)
        if apply_topics:
            topic_admin.apply(settings)
        return settings

    yield make
    for settings in made:
        # A test that brings its own broker ends that broker, with its topics.
        if settings.brokers == broker:
            topic_admin.delete(settings)


@pytest.fixture
def settings(make_settings: MakeSettings) -> Settings:
    """Settings with a prefix and a data folder of their own, topics applied."""
    return make_settings()
