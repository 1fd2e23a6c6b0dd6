"""One deployment without a worker, and one worker, for all tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from streams import topic_admin
from streams.settings import Settings
from tests.contract.bare_client import BareClient
from tests.crash.conftest import start_trial
from tests.integration.conftest import Deployment, deployed
from tests.integration.lane_rig import Rig
from tests.worker_process import WorkerProcess

__all__ = ["start_trial"]

PARTITIONS = 2


@pytest.fixture(scope="session")
def deployment(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Topics of which each test has a partition, where it drives lanes by hand."""
    with deployed(broker, tmp_path_factory.mktemp("deployment"), partitions=44) as made:
        yield made


@pytest.fixture
def rig(deployment: Deployment) -> Rig:
    """A partition of its own."""
    return Rig(deployment.settings, deployment.next_partition())


@pytest.fixture(scope="session")
def prefix(broker: str) -> Iterator[str]:
    """The worker's prefix, with its topics."""
    settings = Settings(brokers=broker, prefix=f"modes{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
    topic_admin.apply(settings)
    yield settings.prefix
    topic_admin.delete(settings)


@pytest.fixture(scope="session")
def _process(broker: str, prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with WorkerProcess(broker, prefix, tmp_path_factory.mktemp("worker"), partitions=PARTITIONS) as process:
        yield process


@pytest.fixture
def worker(_process: WorkerProcess) -> WorkerProcess:
    """The worker, ready, whatever an earlier test did to it."""
    if not _process.alive:
        _process.start()
    return _process.wait_ready()


@pytest.fixture(scope="session")
def client(broker: str, prefix: str) -> Iterator[BareClient]:
    """A client for the worker."""
    client = BareClient(broker, prefix, PARTITIONS)
    yield client
    client.close()
