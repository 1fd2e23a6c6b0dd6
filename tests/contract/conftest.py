"""One worker for the whole contract suite, on a prefix of its own, and a bare client for it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka.admin import AdminClient

from streams import topic_admin
from streams.settings import Settings
from tests.contract.bare_client import BareClient, key_in_partition, new_id
from tests.sealed_sessions import sealed
from tests.worker_process import WorkerProcess

PARTITIONS = 4

StillServed = Callable[[int], None]


@dataclass(frozen=True)
class FinishedRun:
    """A submitted run that failed with the error `the end`, and whose eviction was asked for.

    The worker was killed and started again between the two.
    """

    run_id: str
    submit_id: str
    end_id: str
    latest_seq: int
    evicts_at: int
    """In milliseconds since the epoch."""


@dataclass(frozen=True)
class ExpiringRun:
    """A run whose retry state, sessions and instance expire within the suite's time."""

    run_id: str
    expires_at: int
    """In milliseconds since the epoch."""


@pytest.fixture(scope="session")
def prefix(broker: str) -> Iterator[str]:
    """The suite's prefix, with its topics."""
    settings = Settings(brokers=broker, prefix=f"contract{uuid.uuid4().hex[:8]}", partitions=PARTITIONS)
    topic_admin.apply(settings)
    yield settings.prefix
    topic_admin.delete(settings)


@pytest.fixture(scope="session")
def worker(broker: str, prefix: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """The suite's worker, ready."""
    with WorkerProcess(broker, prefix, tmp_path_factory.mktemp("worker"), partitions=PARTITIONS) as process:
        yield process.start().wait_ready()


@pytest.fixture(scope="session")
def client(broker: str, prefix: str, worker: WorkerProcess) -> Iterator[BareClient]:
    """A client for the suite's worker."""
    client = BareClient(broker, prefix, PARTITIONS, reply_partition=1)
    yield client
    client.close()


@pytest.fixture(scope="session", autouse=True)
def finished_run(client: BareClient, worker: WorkerProcess) -> FinishedRun:
    """Finished when the suite starts, so that its eviction need not be waited for in full.

    The worker that took the order is killed, and its disk is lost: the eviction is its successor's.
    """
    run_id, submit_id, end_id = new_id("finished"), new_id(), new_id()
    client.result("run.submit", run_id, command_id=submit_id, name="x")
    client.append_log(run_id, "x")
    client.append_log(run_id, "y")
    client.result("launch.put", run_id, params={"a": 1}, sessions=[sealed()])
    client.result("instance.put", run_id, instanceId="i")
    client.result("trace.add", run_id, trace={"source": "coordinator", "phase": "p", "ts": 1, "ms": 2})
    end = {"status": "failed", "error": "the end", "result": {"rows": "x" * 5000}}
    client.result("terminal.set", run_id, command_id=end_id, **end)
    finish = client.result("run.finish", run_id)
    worker.kill()
    worker.lose_disk()
    worker.start().wait_ready()
    still_there = client.ask("terminal.get", run_id)
    assert client.reply(still_there)["result"]["terminal"] is not None
    assert still_there.sent.timestamp < finish["evictsAt"]
    return FinishedRun(run_id, submit_id, end_id, latest_seq=4, evicts_at=finish["evictsAt"])


@pytest.fixture(scope="session", autouse=True)
def expiring_run(client: BareClient) -> ExpiringRun:
    """Everything that expires is put as short as it may be when the suite starts."""
    run_id = new_id("expiring")
    client.result("retry.put", run_id, params={"a": 1}, ttlMs=0)
    client.result("retry.claim", run_id, maxAttempts=0)
    client.result("sessions.put", run_id, sessions=[sealed()], ttlMs=0)
    asked = client.ask("instance.put", run_id, instanceId="i", ttlMs=0)
    client.reply(asked)
    return ExpiringRun(run_id, asked.sent.timestamp + 60_000)


@pytest.fixture(autouse=True)
def _worker_lives(worker: WorkerProcess) -> Iterator[None]:
    """A worker that a test has ended is that test's failure, and no other's."""
    if not worker.alive:
        worker.start().wait_ready()
    yield
    assert worker.alive, worker.explain("this test ended the worker")


@pytest.fixture
def admin(broker: str) -> AdminClient:
    """An admin client; it must outlive what it is asked."""
    return AdminClient({"bootstrap.servers": broker})


@pytest.fixture
def run_id() -> str:
    """A run that nobody has named before."""
    return new_id("run")


@pytest.fixture
def still_served(client: BareClient) -> StillServed:
    """Check that the next command of a partition is applied."""

    def check(partition: int) -> None:
        run_id = key_in_partition(partition, client.partitions, "next")
        assert client.append_log(run_id, "still served")["seq"] == 1

    return check
