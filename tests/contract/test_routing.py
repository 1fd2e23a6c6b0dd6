"""Wire contract, section 1: commands in the wrong partition, and the order of the checks."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.contract.bare_client import (
    BareClient,
    Sent,
    command,
    key_in_partition,
    murmur2,
    new_id,
    partition_of,
)
from tests.contract.conftest import StillServed
from tests.contract.topic_reader import Record

EVENT = {"type": "log", "line": "hello"}

# From the tests of Kafka's own Java client.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def wrong_partition(client: BareClient, run_id: str, by: int = 1) -> int:
    """A partition that does not own the run."""
    return (client.partition_of(run_id) + by) % client.partitions


def forwarded(client: BareClient, run_id: str) -> list[Record]:
    """The records of a run in the partition that owns it, in log order."""
    owner = client.partition_of(run_id)
    return [record for record in client.settled("run-commands", run_id.encode()) if record.partition == owner]


def test_the_bare_clients_murmur2_is_that_of_java() -> None:
    for key, expected in JAVA_HASHES.items():
        assert murmur2(key) == expected & 0xFFFFFFFF


@pytest.mark.parametrize("by", [1, 2, 3])
def test_a_command_in_the_wrong_partition_reaches_its_run_once(
    client: BareClient, run_id: str, still_served: StillServed, by: int
) -> None:
    partition = wrong_partition(client, run_id, by)
    asked = client.ask("events.append", run_id, partition=partition, event=EVENT)
    assert client.reply(asked)["result"]["seq"] == 1
    assert client.append_log(run_id, "direct")["seq"] == 2
    still_served(partition)
    assert [event["seq"] for event in client.events(run_id)] == [1, 2]
    assert client.event_record(run_id, 1).partition == client.partition_of(run_id)
    client.reader.catch_up("replies")
    answers = client.reader.records("replies", lambda record: record.key == asked.correlation_id)
    assert len(answers) == 1


def test_commands_of_librdkafkas_own_partitioner_reach_their_runs_once(
    client: BareClient, broker: str
) -> None:
    run_ids = [new_id("crc") for _ in range(40)]
    producer = Producer({"bootstrap.servers": broker})
    placed: dict[str, Sent] = {}
    for run_id in run_ids:
        producer.produce(
            client.topic("run-commands"),
            key=run_id.encode(),
            value=command("events.append", run_id, new_id(), event=EVENT),
            on_delivery=lambda error, message, run_id=run_id: placed.update(
                {run_id: Sent(message.partition(), message.offset(), 0)}
            ),
        )
    producer.flush(30)
    assert any(placed[run_id].partition != client.partition_of(run_id) for run_id in run_ids)
    for run_id in run_ids:
        client.event(run_id, 1)
    assert all(len(client.events(run_id)) == 1 for run_id in run_ids)


def test_key_value_and_all_headers_are_forwarded_unchanged(client: BareClient, run_id: str) -> None:
    correlation_id, address = client.reply_address()
    headers = [
        ("trace", b"1"),
        ("empty", b""),
        ("null", None),
        ("bytes", b"\xff\xfe\x00"),
        ("trace", b"2"),
        ("ünïcode", "ü".encode()),
        *address,
        ("runlane.note", b"mine"),
    ]
    value = b" " + command("events.append", run_id, new_id(), event=EVENT, unknown=[1.50]) + b"\n"
    client.send(value, key=run_id.encode(), headers=headers, partition=wrong_partition(client, run_id))
    assert client.reply_record(correlation_id).json()["ok"] is True
    records = forwarded(client, run_id)
    assert [(record.value, record.headers) for record in records] == [(value, tuple(headers))]


def test_the_time_of_a_forwarded_command_is_its_arrival_in_the_right_partition(
    client: BareClient, run_id: str
) -> None:
    for _ in range(5):
        sent_at = client.ask("events.append", run_id, partition=wrong_partition(client, run_id), event=EVENT)
        client.reply(sent_at)
    times = [event["ts"] for event in client.events(run_id)]
    arrivals = [record.timestamp for record in forwarded(client, run_id)]
    assert len(arrivals) == 5
    assert all(time >= arrival for time, arrival in zip(times, arrivals, strict=True))


@pytest.mark.parametrize("key", ["", "\0", "a", "ab", "abc", "abcd", "é", "😀", "\x80\x81\x82", "x" * 511])
def test_the_partition_is_murmur2_of_the_key_for_any_key(client: BareClient, key: str) -> None:
    run_id = key or new_id("\x7f")
    if len(run_id) < 10:
        run_id = f"{run_id}{new_id('')[-len(run_id) - 9 :]}"
    sent = client.ask("events.append", run_id, event=EVENT)
    assert client.reply(sent)["ok"] is True
    assert [record.offset for record in forwarded(client, run_id)] == [sent.sent.offset]


def test_no_partition_forwards_what_it_owns(client: BareClient) -> None:
    run_ids = [new_id() for _ in range(60)]
    assert {partition_of(run_id.encode(), client.partitions) for run_id in run_ids} == set(
        range(client.partitions)
    )
    for run_id in run_ids:
        client.post("events.append", run_id, event=EVENT)
    for run_id in run_ids:
        client.event(run_id, 1)
    assert all(len(client.settled("run-commands", run_id.encode())) == 1 for run_id in run_ids)


def test_the_envelope_is_checked_before_the_routing(client: BareClient, run_id: str) -> None:
    partition = wrong_partition(client, run_id)
    asked = client.ask_bytes(b"not JSON", key=run_id.encode(), partition=partition)
    assert client.reply(asked)["error"]["code"] == "INVALID_JSON"
    assert client.dead_letter(asked.sent).partition == partition
    assert len(client.settled("run-commands", run_id.encode())) == 1


def test_the_routing_is_checked_before_the_repeat(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.append_log(run_id, "once", command_id=command_id)
    again = client.append_log(
        run_id, "twice", command_id=command_id, partition=wrong_partition(client, run_id)
    )
    assert again == first
    assert len(client.events(run_id)) == 1
    assert len(forwarded(client, run_id)) == 2


def test_a_command_sent_to_every_partition_is_executed_once(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    answers = [
        client.append_log(run_id, "x", command_id=command_id, partition=partition)
        for partition in range(client.partitions)
    ]
    assert [answer["seq"] for answer in answers] == [1] * client.partitions
    assert len(client.events(run_id)) == 1


def test_the_envelope_is_checked_before_the_repeat(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    client.append_log(run_id, "x", command_id=command_id)
    wrong = command("no.such", run_id, command_id)
    asked = client.ask_bytes(wrong, key=run_id.encode())
    assert client.reply(asked)["error"]["code"] == "UNKNOWN_COMMAND"
    client.dead_letter(asked.sent)


def test_the_repeat_is_checked_before_the_fields(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.append_log(run_id, "x", command_id=command_id)
    assert client.result("events.append", run_id, command_id=command_id, event="no event") == first


def test_the_fields_are_checked_before_the_state(client: BareClient, run_id: str) -> None:
    client.result("run.cancel", run_id)
    assert client.refusal("events.append", run_id, event={"type": "no such"})["code"] == "INVALID_RUN_EVENT"
    assert client.refusal("run.submit", run_id)["code"] == "INVALID_COMMAND"
    assert client.refusal("events.append", run_id, event=EVENT)["code"] == "RUN_ENDED"


def test_fields_are_checked_in_the_right_partition(client: BareClient, run_id: str) -> None:
    partition = wrong_partition(client, run_id)
    error = client.refusal("events.append", run_id, partition=partition)
    assert error["code"] == "INVALID_RUN_EVENT"
    assert len(forwarded(client, run_id)) == 1


def test_misrouted_commands_keep_their_order_among_themselves(client: BareClient) -> None:
    run_id = key_in_partition(0, client.partitions)
    sent = [
        client.post("events.append", run_id, partition=3, event={"type": "log", "line": str(number)})
        for number in range(50)
    ]
    client.event(run_id, len(sent))
    assert [event["commandId"] for event in client.events(run_id)] == sent
