"""Wire contract, section 6: names, health, stopping, and a client's open transactions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from streams import topic_admin
from streams.settings import Settings
from tests.contract.bare_client import BareClient, command, key_in_partition, new_id
from tests.contract.conftest import StillServed
from tests.contract.transactional_ids import transactional_ids
from tests.worker_process import WorkerProcess

PATIENCE_S = 30.0
COMMAND_TOPICS = ("run", "rate", "pool", "queue", "hook", "stream")
TOPICS = {
    *(f"{name}-commands" for name in COMMAND_TOPICS),
    "run-events",
    "run-terminals",
    "run-dispatch",
    "queue-deliveries",
    "replies",
    "dead-letters",
    "state-changelog",
}
EVENT = {"type": "log", "line": "hello"}


@pytest.fixture
def lone_prefix(broker: str) -> Iterator[str]:
    """A prefix of its own whose topics have one partition, and no worker yet."""
    settings = Settings(brokers=broker, prefix=f"lone{uuid.uuid4().hex[:8]}", partitions=1)
    topic_admin.apply(settings)
    yield settings.prefix
    topic_admin.delete(settings)


def lone_worker(
    broker: str, prefix: str, folder: Path, *, settings: dict[str, str] | None = None
) -> WorkerProcess:
    """A worker for topics with one partition."""
    return WorkerProcess(broker, prefix, folder, partitions=1, settings=settings)


def test_topics_are_named_by_the_prefix_and_all_are_there(admin: AdminClient, prefix: str) -> None:
    existing = admin.list_topics(timeout=PATIENCE_S).topics
    assert {name for name in existing if name.startswith(prefix)} == {f"{prefix}-{name}" for name in TOPICS}


def test_all_topics_have_as_many_partitions_as_the_command_topics(admin: AdminClient, prefix: str) -> None:
    existing = admin.list_topics(timeout=PATIENCE_S).topics
    assert {len(existing[f"{prefix}-{name}"].partitions) for name in TOPICS} == {4}


def test_command_topics_have_the_brokers_time(admin: AdminClient, prefix: str) -> None:
    resources = [ConfigResource(ResourceType.TOPIC, f"{prefix}-{name}-commands") for name in COMMAND_TOPICS]
    for answer in admin.describe_configs(resources).values():
        assert answer.result()["message.timestamp.type"].value == "LogAppendTime"


def test_terminals_and_changelog_are_compacted_and_nothing_else(admin: AdminClient, prefix: str) -> None:
    resources = [ConfigResource(ResourceType.TOPIC, f"{prefix}-{name}") for name in TOPICS]
    described = admin.describe_configs(resources)
    compacted = {
        resource.name.removeprefix(f"{prefix}-")
        for resource, answer in described.items()
        if answer.result()["cleanup.policy"].value == "compact"
    }
    assert compacted == {"run-terminals", "state-changelog"}


def test_the_consumer_group_is_lanes(admin: AdminClient, prefix: str, client: BareClient) -> None:
    groups = admin.list_consumer_groups().result().valid
    assert [group.group_id for group in groups if group.group_id.startswith(prefix)] == [f"{prefix}-lanes"]


def test_the_transactional_ids_are_two_per_lane(broker: str, prefix: str, client: BareClient) -> None:
    expected = {f"{prefix}-lane-{partition}-{number}" for partition in range(4) for number in range(2)}
    assert transactional_ids(broker, prefix) == expected


def test_lag_tools_see_the_group_at_the_end(
    broker: str, client: BareClient, still_served: StillServed
) -> None:
    for partition in range(client.partitions):
        still_served(partition)
    topic = client.topic("run-commands")
    group = Consumer({"bootstrap.servers": broker, "group.id": client.topic("lanes")})
    wanted = [TopicPartition(topic, partition) for partition in range(client.partitions)]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        committed = [position.offset for position in group.committed(wanted, timeout=PATIENCE_S)]
        ends = [group.get_watermark_offsets(position, timeout=PATIENCE_S)[1] for position in wanted]
        if committed == ends:
            break
        assert time.monotonic() < deadline, f"committed {committed}, ends {ends}"
        time.sleep(0.1)
    group.close()


def test_a_worker_is_live_and_ready_and_has_metrics(worker: WorkerProcess) -> None:
    assert worker.get("/health/live")[0] == 200
    assert worker.get("/health/ready")[0] == 200
    status, text = worker.get("/metrics")
    assert status == 200
    assert "runlane_" in text


def test_a_worker_is_ready_also_with_no_lane_of_its_own(
    broker: str, lone_prefix: str, tmp_path: Path
) -> None:
    first = lone_worker(broker, lone_prefix, tmp_path / "first")
    second = lone_worker(broker, lone_prefix, tmp_path / "second")
    client = BareClient(broker, lone_prefix, 1)
    with first, second:
        first.start().wait_ready()
        second.start().wait_ready()
        first.wait_ready()
        assert client.append_log(new_id(), "served by one of them")["seq"] == 1
    client.close()


def test_on_sigterm_a_worker_hands_over_and_exits_with_0_within_10_seconds(
    broker: str, lone_prefix: str, tmp_path: Path
) -> None:
    first = lone_worker(broker, lone_prefix, tmp_path / "first")
    second = lone_worker(broker, lone_prefix, tmp_path / "second")
    client, run_id = BareClient(broker, lone_prefix, 1), new_id()
    with first, second:
        first.start().wait_ready()
        client.append_log(run_id, "x")
        second.start().wait_ready()
        for _ in range(200):
            client.post("events.append", run_id, event=EVENT)
        assert first.terminate(patience_s=10.0) == 0
        assert client.append_log(run_id, "served by the other")["seq"] == 202
        assert second.terminate(patience_s=10.0) == 0
    client.close()


def test_sigterm_while_it_starts_ends_a_worker_too(broker: str, lone_prefix: str, tmp_path: Path) -> None:
    with lone_worker(broker, lone_prefix, tmp_path) as worker:
        worker.start()
        deadline = time.monotonic() + PATIENCE_S
        while worker.get("/health/live")[0] == 0:
            assert time.monotonic() < deadline, worker.explain("no web server")
            time.sleep(0.01)
        assert worker.terminate(patience_s=10.0) == 0


def test_a_second_worker_on_the_same_data_folder_refuses_to_start(
    broker: str, lone_prefix: str, tmp_path: Path
) -> None:
    first = lone_worker(broker, lone_prefix, tmp_path)
    second = lone_worker(broker, lone_prefix, tmp_path)
    second.log_file = tmp_path / "second.log"
    with first, second:
        first.start().wait_ready()
        second.start()
        assert second.exit_code() != 0
        said = second.log_file.read_text()
        assert str(first.data_dir) in said.replace("\n", "")
        assert "Traceback" not in said
        assert first.get("/health/ready")[0] == 200


def test_a_worker_refuses_to_start_without_its_topics(broker: str, tmp_path: Path) -> None:
    with lone_worker(broker, f"none{uuid.uuid4().hex[:8]}", tmp_path) as worker:
        worker.start()
        assert worker.exit_code() != 0
        said = worker.log_file.read_text()
        assert "runlane topics apply" in " ".join(said.split())
        assert "Traceback" not in said


def test_a_worker_refuses_to_start_on_another_count_of_partitions(
    broker: str, lone_prefix: str, tmp_path: Path
) -> None:
    with WorkerProcess(broker, lone_prefix, tmp_path, partitions=2) as worker:
        worker.start()
        assert worker.exit_code() != 0
        assert "RUNLANE_PARTITIONS=1" in worker.log_file.read_text()


@pytest.mark.parametrize("ending", ["commit", "abort"])
def test_a_clients_open_transaction_holds_up_its_partition_and_no_other(
    client: BareClient, ending: str
) -> None:
    held, free = (key_in_partition(partition, client.partitions) for partition in (0, 1))
    producer = client.transactional_producer()
    producer.begin_transaction()
    value = command("events.append", held, new_id(), event=EVENT)
    producer.produce(client.topic("run-commands"), value, held.encode(), partition=0)
    producer.flush()
    behind = client.ask("events.append", held, event={"type": "log", "line": "behind it"})
    assert client.append_log(free, "another partition")["seq"] == 1
    client.reader.catch_up("replies")
    assert client.reader.records("replies", lambda record: record.key == behind.correlation_id) == []
    if ending == "commit":
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    assert client.reply(behind)["result"]["seq"] == (2 if ending == "commit" else 1)


def test_the_stack_allows_transactions_of_60_seconds(client: BareClient) -> None:
    client.transactional_producer(**{"transaction.timeout.ms": 60_000})
    with pytest.raises(KafkaException) as refused:
        client.transactional_producer(**{"transaction.timeout.ms": 60_001})
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_an_alarm_says_when_a_partition_stands_still_while_its_end_moves_on(
    broker: str, lone_prefix: str, tmp_path: Path
) -> None:
    client, run_id = BareClient(broker, lone_prefix, 1), new_id()
    with lone_worker(broker, lone_prefix, tmp_path, settings={"RUNLANE_STALL_ALARM_S": "1"}) as worker:
        worker.start().wait_ready()
        client.append_log(run_id, "x")
        hanging = client.transactional_producer()
        hanging.begin_transaction()
        value = command("events.append", run_id, new_id(), event=EVENT)
        hanging.produce(client.topic("run-commands"), value, run_id.encode(), partition=0)
        hanging.flush()
        deadline = time.monotonic() + PATIENCE_S
        while (answer := worker.get("/health/ready"))[0] == 200:
            client.post("events.append", run_id, event=EVENT)
            assert time.monotonic() < deadline, worker.explain("no alarm")
            time.sleep(0.1)
        assert "stands still" in answer[1]
        stalled = [
            line for line in worker.get("/metrics")[1].splitlines() if "runlane_partition_stalled{" in line
        ]
        assert any(line.endswith(" 1.0") for line in stalled)
        assert "stands still" in worker.log_file.read_text()
        hanging.abort_transaction()
        worker.wait_ready(PATIENCE_S)
        assert client.append_log(run_id, "served on")["seq"] > 1
    client.close()


def test_a_plain_producer_needs_nothing_but_the_record(broker: str, client: BareClient, run_id: str) -> None:
    producer = Producer({"bootstrap.servers": broker, "partitioner": "murmur2_random"})
    value = command("events.append", run_id, new_id(), event=EVENT)
    producer.produce(client.topic("run-commands"), value, run_id)
    producer.flush(PATIENCE_S)
    assert client.event_record(run_id, 1).partition == client.partition_of(run_id)
