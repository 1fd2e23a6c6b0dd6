"""Wire contract, section 2: sizes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.contract.bare_client import BareClient, command, key_in_partition, new_id
from tests.contract.conftest import StillServed

MIB = 1024 * 1024
COMMAND_TOPICS = ("run", "rate", "pool", "queue", "hook", "stream")
LISTED_BYTES = 768 * 1024

# Four bytes that become eighteen: JSON has many ways to write a number.
SWELLING = "1e15"


def padded(run_id: str, size: int, command_id: str) -> bytes:
    """An append whose value has exactly `size` bytes."""
    empty = len(command("events.append", run_id, command_id, event={"type": "log", "line": ""}))
    return command("events.append", run_id, command_id, event={"type": "log", "line": "x" * (size - empty)})


def swelling(type_: str, run_id: str, command_id: str, count: int, **fields: Any) -> bytes:
    """A command whose `result` takes four times as many bytes when it is written again."""
    value = command(type_, run_id, command_id, result="@", **fields)
    return value.replace(b'"@"', f"[{','.join([SWELLING] * count)}]".encode())


def test_topics_have_these_limits(client: BareClient, admin: AdminClient) -> None:
    limits = {f"{name}-commands": 8 * MIB for name in COMMAND_TOPICS}
    outputs = (
        "run-events",
        "run-terminals",
        "run-dispatch",
        "queue-deliveries",
        "replies",
        "state-changelog",
    )
    limits |= dict.fromkeys(outputs, 2 * MIB) | {"dead-letters": 9 * MIB}
    resources = {ConfigResource(ResourceType.TOPIC, client.topic(name)): name for name in limits}
    described = admin.describe_configs(list(resources))
    for resource, answer in described.items():
        limit = answer.result()["max.message.bytes"].value
        assert int(limit) == limits[resources[resource]], resource.name


def test_a_command_of_1_mib_is_accepted(client: BareClient, run_id: str) -> None:
    asked = client.ask_bytes(padded(run_id, MIB, new_id()), key=run_id.encode())
    assert client.reply(asked)["result"]["seq"] == 1
    assert len(client.event(run_id, 1)["line"]) > MIB - 300


@pytest.mark.parametrize("size", [MIB + 1, 2 * MIB, 4 * MIB])
def test_a_command_over_1_mib_is_too_large(
    client: BareClient, run_id: str, still_served: StillServed, size: int
) -> None:
    value = padded(run_id, size, new_id())
    asked = client.ask_bytes(value, key=run_id.encode())
    assert client.reply(asked)["error"]["code"] == "COMMAND_TOO_LARGE"
    letter = client.dead_letter(asked.sent)
    assert dict(letter.headers)["runlane.error.code"] == b"COMMAND_TOO_LARGE"
    assert letter.value == value
    assert "runlane.error.valueBytes" not in dict(letter.headers)
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    still_served(asked.sent.partition)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", "snappy"])
@pytest.mark.parametrize("size", [4 * MIB + 1, 24 * MIB])
def test_compression_does_not_hide_the_size(
    client: BareClient, run_id: str, still_served: StillServed, compression: str, size: int
) -> None:
    asked = client.ask_bytes(b"\0" * size, key=run_id.encode(), compression=compression)
    assert client.reply(asked)["error"]["code"] == "COMMAND_TOO_LARGE"
    still_served(asked.sent.partition)
    headers = dict(client.dead_letter(asked.sent).headers)
    assert headers["runlane.error.code"] == b"COMMAND_TOO_LARGE"


def test_a_dead_letter_above_4_mib_has_no_value_but_its_size(client: BareClient, run_id: str) -> None:
    sent = client.send(b"\0" * (24 * MIB), key=run_id.encode(), compression="zstd", headers=[("mark", b"x")])
    letter = client.dead_letter(sent)
    assert (letter.key, letter.value) == (run_id.encode(), None)
    assert letter.headers[0] == ("mark", b"x")
    assert dict(letter.headers)["runlane.error.valueBytes"] == str(24 * MIB).encode()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_huge_key_hides_in_compression_no_better(
    client: BareClient, still_served: StillServed, compression: str
) -> None:
    sent = client.send(b"{}", key=b"x" * (20 * MIB), compression=compression, partition=3)
    still_served(3)
    letter = client.dead_letter(sent)
    headers = dict(letter.headers)
    assert (letter.key, letter.value) == (None, b"{}")
    assert headers["runlane.error.code"] == b"INVALID_KEY"
    assert headers["runlane.error.keyBytes"] == str(20 * MIB).encode()


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_huge_headers_hide_in_compression_no_better(
    client: BareClient, run_id: str, still_served: StillServed, compression: str
) -> None:
    headers = [("huge", b"x" * (20 * MIB))]
    sent = client.send(b"{", key=run_id.encode(), headers=headers, compression=compression)
    still_served(sent.partition)
    letter = client.dead_letter(sent)
    assert (letter.key, letter.value) == (run_id.encode(), b"{")
    assert letter.headers[0] == ("runlane.error.code", b"INVALID_JSON")
    assert dict(letter.headers)["runlane.error.headersBytes"] == str(20 * MIB + len("huge")).encode()


def test_huge_headers_of_a_command_do_not_matter(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    headers = [("huge", b"x" * (20 * MIB))]
    assert client.append_log(run_id, "x", headers=headers, compression="zstd")["seq"] == 1
    still_served(client.partition_of(run_id))


def test_a_command_in_the_wrong_partition_that_is_too_large_to_forward_is_a_dead_letter(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    partition = (client.partition_of(run_id) + 1) % client.partitions
    headers = [("huge", b"x" * (20 * MIB))]
    asked = client.ask("run.status", run_id, headers=headers, compression="zstd", partition=partition)
    assert client.reply(asked)["error"]["code"] == "OUTPUT_TOO_LARGE"
    assert dict(client.dead_letter(asked.sent).headers)["runlane.error.code"] == b"OUTPUT_TOO_LARGE"
    still_served(partition)


def test_a_command_whose_outputs_do_not_fit_becomes_a_dead_letter(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    client.append_log(run_id, "before")
    command_id = new_id()
    value = swelling("terminal.set", run_id, command_id, 100_000, status="completed")
    assert len(value) < MIB
    asked = client.ask_bytes(value, key=run_id.encode())
    answer = client.reply(asked)
    assert (answer["ok"], answer["commandId"]) == (False, command_id)
    assert answer["error"]["code"] == "OUTPUT_TOO_LARGE"
    letter = client.dead_letter(asked.sent)
    assert dict(letter.headers)["runlane.error.code"] == b"OUTPUT_TOO_LARGE"
    assert letter.value == value
    still_served(asked.sent.partition)


def test_of_a_command_whose_outputs_do_not_fit_nothing_stays(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "before")
    command_id = new_id()
    value = swelling("terminal.set", run_id, command_id, 100_000, status="completed")
    client.dead_letter(client.send(value, key=run_id.encode()))
    assert client.result("run.status", run_id)["status"] == "running"
    assert client.result("terminal.get", run_id) == {"terminal": None}
    assert client.append_log(run_id, "after", command_id=command_id)["seq"] == 2
    assert [event["type"] for event in client.events(run_id)] == ["log", "log"]
    assert client.settled("run-terminals", run_id.encode()) == []


def test_outputs_that_do_not_fit_harm_no_other_command_of_the_batch(client: BareClient) -> None:
    run_id = key_in_partition(1, client.partitions)
    producer = client.transactional_producer()
    producer.begin_transaction()
    for number in range(20):
        value = command("events.append", run_id, new_id(), event={"type": "log", "line": str(number)})
        if number % 5 == 4:
            value = swelling("terminal.set", run_id, new_id(), 80_000, status="completed")
        producer.produce(client.topic("run-commands"), value, run_id.encode(), partition=1)
    producer.commit_transaction()
    client.event(run_id, 16)
    lines = [event["line"] for event in client.events(run_id)]
    assert lines == [str(number) for number in range(20) if number % 5 != 4]
    assert len(client.settled("dead-letters", run_id.encode())) == 4


def test_what_just_fits_is_written(client: BareClient, run_id: str) -> None:
    value = swelling("terminal.set", run_id, new_id(), 50_000, status="completed")
    asked = client.ask_bytes(value, key=run_id.encode())
    assert client.reply(asked)["ok"] is True
    assert client.terminal(run_id)["result"] == [1e15] * 50_000
    assert client.result("run.status", run_id)["result"] == [1e15] * 50_000


@pytest.fixture(scope="module")
def long_run(client: BareClient) -> str:
    """A run with 520 events, of which the first 20 are not kept any more."""
    run_id = new_id("long")
    for number in range(519):
        client.post("events.append", run_id, event={"type": "log", "line": str(number)})
    assert client.append_log(run_id, "519")["seq"] == 520
    return run_id


@pytest.mark.parametrize(
    ("limit", "listed"),
    [
        (1, 1),
        (0, 1),
        (-7, 1),
        (3, 3),
        (2.9, 2),
        (499, 499),
        (500, 500),
        (501, 500),
        (10**9, 500),
        (1e300, 500),
    ],
)
def test_the_limit_of_a_listing_is_1_to_500(
    client: BareClient, long_run: str, limit: float, listed: int
) -> None:
    result = client.result("events.list", long_run, limit=limit)
    assert [event["seq"] for event in result["events"]] == list(range(21, 21 + listed))


@pytest.mark.parametrize("fields", [{}, {"limit": None}, {"limit": "3"}, {"limit": True}], ids=repr)
def test_the_limit_of_a_listing_is_500_by_default(
    client: BareClient, long_run: str, fields: dict[str, Any]
) -> None:
    assert len(client.result("events.list", long_run, **fields)["events"]) == 500


def test_more_says_that_events_were_left_out_by_the_limit(client: BareClient, long_run: str) -> None:
    assert client.result("events.list", long_run, limit=499)["more"] is True
    assert client.result("events.list", long_run, afterSeq=518, limit=1)["more"] is True
    for fields in ({}, {"afterSeq": 519, "limit": 1}, {"afterSeq": 520}, {"afterSeq": 10**6}):
        assert "more" not in client.result("events.list", long_run, **fields)


def test_first_seq_is_that_of_the_oldest_kept_event(client: BareClient, long_run: str, run_id: str) -> None:
    for after in (0, 300, 520):
        result = client.result("events.list", long_run, afterSeq=after, limit=1)
        assert (result["firstSeq"], result["latestSeq"]) == (21, 520)
    client.append_log(run_id, "x")
    assert client.result("events.list", run_id)["firstSeq"] == 1


def test_first_seq_is_0_when_no_event_is_kept(client: BareClient, run_id: str) -> None:
    assert client.result("events.list", run_id) == {"events": [], "latestSeq": 0, "firstSeq": 0}


def test_the_topic_keeps_the_events_that_a_listing_does_not(client: BareClient, long_run: str) -> None:
    assert [event["seq"] for event in client.events(long_run)] == list(range(1, 521))


def test_a_listing_has_at_most_768_kib_of_events(client: BareClient, run_id: str) -> None:
    for number in range(8):
        client.append_log(run_id, str(number) + "x" * 200_000)
    seen, after = [], 0
    while True:
        result = client.result("events.list", run_id, afterSeq=after)
        sizes = [len(json.dumps(event, separators=(",", ":")).encode()) for event in result["events"]]
        assert 1 <= len(sizes) <= 3
        assert sum(sizes) <= LISTED_BYTES
        seen += [event["seq"] for event in result["events"]]
        if not result.get("more"):
            break
        after = seen[-1]
    assert seen == list(range(1, 9))


def test_a_listing_has_at_least_one_event_of_any_size(client: BareClient, run_id: str) -> None:
    for _ in range(2):
        asked = client.ask_bytes(padded(run_id, MIB, new_id()), key=run_id.encode())
        assert client.reply(asked)["ok"] is True
    result = client.result("events.list", run_id)
    assert [event["seq"] for event in result["events"]] == [1]
    assert result["more"] is True
    assert "more" not in client.result("events.list", run_id, afterSeq=1)
