"""Bad and unusual input: compressed batches, a client's own transactions, tombstones."""

from __future__ import annotations

import pytest

from tests.contract.bare_client import BareClient, command, key_in_partition, new_id
from tests.contract.conftest import StillServed

EVENT = {"type": "log", "line": "hello"}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(client: BareClient, run_id: str, compression: str) -> None:
    for size in (10, 100_000):
        line = {"type": "log", "line": "x" * size}
        answer = client.call("events.append", run_id, event=line, compression=compression)
        assert answer["ok"] is True
    assert [len(event["line"]) for event in client.events(run_id)] == [10, 100_000]


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_compressed_batch_of_many_commands_is_read(client: BareClient, compression: str) -> None:
    run_id = key_in_partition(3, client.partitions)
    producer = client.transactional_producer(**{"compression.type": compression, "linger.ms": 50})
    producer.begin_transaction()
    for number in range(300):
        value = command("events.append", run_id, new_id(), event={"type": "log", "line": str(number)})
        producer.produce(client.topic("run-commands"), value, run_id.encode(), partition=3)
    producer.commit_transaction()
    client.event(run_id, 300)
    assert [event["line"] for event in client.events(run_id)] == [str(number) for number in range(300)]


@pytest.mark.parametrize("partition", range(4))
def test_tombstones_are_dead_letters(client: BareClient, still_served: StillServed, partition: int) -> None:
    run_id = key_in_partition(partition, client.partitions)
    client.append_log(run_id, "x")
    sent = client.send(None, key=run_id.encode())
    assert dict(client.dead_letter(sent).headers)["runlane.error.code"] == b"INVALID_JSON"
    still_served(partition)
    assert client.append_log(run_id, "the run is still there")["seq"] == 2


def test_a_record_with_nothing_in_it_is_a_dead_letter(client: BareClient, still_served: StillServed) -> None:
    sent = client.send(None, key=None)
    assert dict(client.dead_letter(sent).headers)["runlane.error.code"] == b"INVALID_KEY"
    still_served(sent.partition)


def test_a_clients_own_aborted_transactions_leave_nothing(
    client: BareClient, still_served: StillServed
) -> None:
    run_id = key_in_partition(2, client.partitions)
    producer = client.transactional_producer()
    kept = []
    for number in range(20):
        producer.begin_transaction()
        for _ in range(5):
            command_id = new_id()
            value = command("events.append", run_id, command_id, event=EVENT)
            producer.produce(client.topic("run-commands"), value, run_id.encode(), partition=2)
            if number % 2:
                kept.append(command_id)
        producer.flush()
        if number % 2:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    still_served(2)
    client.event(run_id, len(kept))
    assert [event["commandId"] for event in client.events(run_id)] == kept


def test_a_partition_that_ends_with_aborted_transactions_is_served_on(
    client: BareClient, still_served: StillServed
) -> None:
    producer = client.transactional_producer()
    for _ in range(10):
        producer.begin_transaction()
        producer.produce(client.topic("run-commands"), b"{", b"k", partition=1)
        producer.flush()
        producer.abort_transaction()
        still_served(1)


def test_commands_to_many_partitions_in_one_client_transaction_are_all_read(client: BareClient) -> None:
    run_ids = [key_in_partition(partition, client.partitions) for partition in range(client.partitions)]
    producer = client.transactional_producer()
    producer.begin_transaction()
    for run_id in run_ids:
        value = command("events.append", run_id, new_id(), event=EVENT)
        producer.produce(
            client.topic("run-commands"), value, run_id.encode(), partition=client.partition_of(run_id)
        )
    producer.commit_transaction()
    for run_id in run_ids:
        assert client.event(run_id, 1)["line"] == "hello"


def test_records_of_an_old_time_are_commands_of_now(client: BareClient, run_id: str) -> None:
    producer = client.transactional_producer()
    producer.begin_transaction()
    value = command("events.append", run_id, new_id(), event=EVENT)
    producer.produce(
        client.topic("run-commands"),
        value,
        run_id.encode(),
        partition=client.partition_of(run_id),
        timestamp=1_000_000_000_000,
    )
    producer.commit_transaction()
    assert client.event(run_id, 1)["ts"] > 1_600_000_000_000
