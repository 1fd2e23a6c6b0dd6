"""Fixtures of the tests on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from streams import topic_admin
from streams.settings import Settings


@dataclass
class Deployment:
    """Topics that several tests share; each test has partitions of its own, and no worker runs."""

    settings: Settings
    _used: int = field(default=0)

    def next_partition(self) -> int:
        """A partition that no other test has used."""
        partition, self._used = self._used, self._used + 1
        if partition >= self.settings.partitions:
            raise LookupError("more tests than partitions: raise the number in the fixture `deployment`")
        return partition


@contextmanager
def deployed(broker: str, data_dir: Path, partitions: int) -> Iterator[Deployment]:
    """Topics with a partition for each test; making topics is what takes time."""
    settings = Settings(
        brokers=broker,
        prefix=f"d{uuid.uuid4().hex[:10]}",
        partitions=partitions,
        data_dir=data_dir,
        web_port=0,
    )
    topic_admin.apply(settings)
    yield Deployment(settings)
    topic_admin.delete(settings)


@pytest.fixture(scope="module")
def deployment(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Topics with a partition for each test of a module."""
    with deployed(broker, tmp_path_factory.mktemp("deployment"), partitions=24) as made:
        yield made
