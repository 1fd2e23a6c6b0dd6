"""`runlane log-tail` with a real worker: every line is logged once, in order, whoever is killed."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from tests.integration.command_line import CommandLine
from tests.serving import served
from tests.waiting import wait_until

RUNS = [f"play/tail/run/{number}" for number in range(3)]
PARTITIONS = 2
PATIENCE_S = 120


@pytest.fixture(scope="module")
def settings(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics with a worker, for all tests of this module."""
    settings = Settings(brokers=broker, prefix=f"tail{uuid.uuid4().hex[:8]}")
    with served(settings, tmp_path_factory.mktemp("worker")):
        yield settings


@pytest.fixture(scope="module")
def client(settings: Settings) -> Iterator[RunlaneSyncClient]:
    with RunlaneSyncClient(settings) as opened:
        yield opened


@pytest.fixture
def cli(settings: Settings) -> CommandLine:
    # A member that was killed leaves the group soon.
    return CommandLine(settings.brokers or "", settings.prefix, RUNLANE_SESSION_TIMEOUT_MS="6000")


@pytest.fixture
def topic(broker: str) -> Iterator[str]:
    """A log topic, which is not one of the deployment's."""
    name = f"logs-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    yield name
    admin.delete_topics([name])[name].result(30)


def produce(settings: Settings, topic: str, records: list[tuple[int, str]]) -> None:
    """Append (partition, value) records."""
    producer = Producer({"bootstrap.servers": settings.brokers, "linger.ms": 5})
    for partition, value in records:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def logged(client: RunlaneSyncClient, run_id: str) -> list[str]:
    return [event.line for event in client.events(run_id, follow=False) if event.type == "log"]


def test_each_line_is_logged_once_in_order_while_the_tail_is_killed(
    settings: Settings, client: RunlaneSyncClient, cli: CommandLine, topic: str
) -> None:
    # Each run's lines stand in one partition, so that their order is the topic's.
    lines = [(RUNS[n % 3], n) for n in range(2400)]
    records = [(RUNS.index(run) % PARTITIONS, f"[deepline-run:{run}] line {n}") for run, n in lines]
    expected = {run: [f"line {n}" for owner, n in lines if owner == run] for run in RUNS}
    produce(settings, topic, records[:1200])
    for part in (100, 500):
        with cli.following("log-tail", topic):
            # Killed in the middle, with lines under way that are not committed.
            wait_until(lambda part=part: len(logged(client, RUNS[0])) >= part // 3, "lines", PATIENCE_S)  # type: ignore[misc]
    produce(settings, topic, records[1200:])
    with cli.following("log-tail", topic, "--json") as tail:
        for run in RUNS:
            wait_until(
                lambda run=run: len(logged(client, run)) >= len(expected[run]),  # type: ignore[misc]
                "all lines",
                PATIENCE_S,
            )
        tail.send_signal(signal.SIGTERM)
        out, errors = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == 0, errors
    counts = json.loads(out)
    assert counts["refused"] == {}
    assert counts["logged"] == counts["records"] >= 1200
    for run in RUNS:
        assert logged(client, run) == expected[run]


def test_what_is_no_run_s_is_passed_over_and_what_is_refused_is_counted(
    settings: Settings, client: RunlaneSyncClient, cli: CommandLine, topic: str
) -> None:
    open_run, over = f"play/x/run/{uuid.uuid4().hex}", f"play/x/run/{uuid.uuid4().hex}"
    client.cancel(over)
    delivery = {"logs": [f"{open_run}: a", {"message": ["[perf-trace]", open_run]}], "exceptions": [over]}
    produce(
        settings,
        topic,
        [(0, "no run's"), (0, json.dumps(delivery)), (1, "\x00"), (0, f"[deepline-run:{open_run}] b")],
    )
    with cli.following("log-tail", topic, "--group", "others") as tail:
        wait_until(lambda: len(logged(client, open_run)) == 2, "both lines", PATIENCE_S)
        tail.send_signal(signal.SIGINT)
        out, errors = tail.communicate(timeout=PATIENCE_S)
    assert tail.returncode == 0, errors
    assert "2 lines logged, refused: 1 RUN_ENDED" in out
    assert logged(client, open_run) == [f"{open_run}: a", "b"]
    assert logged(client, over) == []


def test_a_topic_that_is_not_there_or_is_our_own_is_refused(settings: Settings, cli: CommandLine) -> None:
    assert "cannot be read" in cli.error("log-tail", "no-such-topic")["message"]
    own = cli.error("log-tail", settings.name("run-events"), code=2)
    assert "is a topic of this deployment" in own["message"]
