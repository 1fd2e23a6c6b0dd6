"""The broker is killed by SIGKILL and restarted under load. It is a broker of its own, and the prefix is empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from streams import topic_admin
from streams.broker import local_broker
from streams.settings import Settings
from tests.contract.transactional_ids import transactional_ids
from tests.crash.trial import Trial

PARTITIONS = 2
ROUNDS = 2


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a broker that runs for this test alone, with topics that have no prefix."""
    settings = Settings(brokers=None, prefix="", partitions=PARTITIONS, broker_dir=tmp_path / "broker")
    try:
        local_broker.up(settings)
        topic_admin.apply(settings)
        yield settings
    finally:
        local_broker.remove(settings)


def test_the_broker_is_killed_and_restarted_under_load(own_broker: Settings, tmp_path: Path) -> None:
    address = local_broker.resolve_brokers(own_broker)
    trial = Trial(address, "", PARTITIONS, tmp_path, per_second=200, seed=4)
    try:
        workers = [trial.worker().start().wait_ready() for _ in range(2)]
        trial.load.start()
        for _ in range(ROUNDS):
            trial.wait_for_progress()
            assert local_broker.kill(own_broker)
            trial.wait_for(
                lambda: all(worker.get("/health/live")[0] == 200 for worker in workers), "the workers live on"
            )
            time.sleep(1.0)
            local_broker.up(own_broker)
        trial.wait_for_progress()
        trial.finish()
        assert all(worker.alive for worker in workers)
        check_names(address)
    finally:
        trial.close()


def check_names(address: str) -> None:
    """With an empty prefix, names have none."""
    admin = AdminClient({"bootstrap.servers": address})
    groups = admin.list_consumer_groups().result().valid
    assert [group.group_id for group in groups if not group.group_id.startswith("bare-")] == ["lanes"]
    topics = {name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")}
    assert {"run-commands", "run-events", "state-changelog"} <= topics
    expected = {f"lane-{partition}-{number}" for partition in range(PARTITIONS) for number in range(2)}
    assert transactional_ids(address, "lane-") == expected
