"""The in-memory Kafka and a real broker, for the suites that run on both."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from streams import topic_admin
from streams.settings import Settings
from tests.integration.conftest import Deployment
from tests.integration.half_marked import unverified_transactions
from tests.simulation.cluster_sides import REFUSED_BYTES, KafkaSide, MemorySide, Side
from tests.simulation.contract_steps import REFUSING

PARTITIONS = 24


@pytest.fixture(scope="module")
def deployment(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Topics that the tests of this module share, a partition for each."""
    settings = Settings(
        brokers=broker,
        prefix=f"c{uuid.uuid4().hex[:10]}",
        partitions=PARTITIONS,
        data_dir=tmp_path_factory.mktemp("deployment"),
        web_port=0,
    )
    topic_admin.apply(settings)
    _limit_records(settings)
    yield Deployment(settings)
    topic_admin.delete(settings)


def _limit_records(settings: Settings) -> None:
    entry = ConfigEntry("max.message.bytes", str(REFUSED_BYTES), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, settings.name(REFUSING), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": settings.brokers})
    for future in admin.incremental_alter_configs([topic]).values():
        future.result()


@pytest.fixture(params=["memory", "kafka"])
def side(request: pytest.FixtureRequest) -> Side:
    """The cluster under test."""
    if request.param == "memory":
        return MemorySide()
    deployment: Deployment = request.getfixturevalue("deployment")
    return KafkaSide(deployment.settings, deployment.next_partition())


@pytest.fixture
def lossy(side: Side) -> Iterator[Side]:
    """The cluster under test, which lets records into a transaction that will never get their marker."""
    if isinstance(side, KafkaSide):
        with unverified_transactions(side.lane()._config.connection["bootstrap.servers"]):
            yield side
    else:
        yield side
