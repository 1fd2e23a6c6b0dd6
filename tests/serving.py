"""Topics with a worker, for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams import topic_admin
from streams.settings import Settings
from tests.worker_process import WorkerProcess


@contextmanager
def served(settings: Settings, folder: Path) -> Iterator[Settings]:
    """Make the topics of `settings` and let a worker in `folder` serve them; both are gone afterwards."""
    topic_admin.apply(settings)
    with WorkerProcess(settings.brokers or "", settings.prefix, folder) as worker:
        worker.start().wait_ready()
        yield settings
    topic_admin.delete(settings)
