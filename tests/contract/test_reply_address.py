"""Wire contract, section 1: the reply address of a command."""

from __future__ import annotations

import pytest

from tests.contract.bare_client import BareClient, Headers, command, new_id
from tests.contract.conftest import StillServed

EVENT = {"type": "log", "line": "hello"}

WRONG_PARTITIONS: dict[str, bytes | None] = {
    "empty": b"",
    "null": None,
    "sign": b"+1",
    "minus": b"-1",
    "space before": b" 1",
    "space behind": b"1 ",
    "line end": b"1\n",
    "NUL": b"1\0",
    "decimal point": b"1.0",
    "hexadecimal": b"0x1",
    "underscore": b"1_0",
    "a word": b"one",
    "digits of another script": "١".encode(),
    "six digits": b"000001",
    "binary": b"\x00\x00\x00\x01",
    "not UTF-8": b"\xff",
    "one too many": b"4",
    "far too many": b"99999",
}


def send(client: BareClient, run_id: str, headers: Headers) -> None:
    """Send an append whose reply address must be refused."""
    sent = client.send(
        command("events.append", run_id, new_id(), event=EVENT), key=run_id.encode(), headers=headers
    )
    letter = client.dead_letter(sent)
    assert dict(letter.headers)["runlane.error.code"] == b"INVALID_REPLY_ADDRESS"


@pytest.mark.parametrize("what", WRONG_PARTITIONS)
def test_a_reply_partition_is_1_to_5_ascii_digits_of_an_existing_partition(
    client: BareClient, run_id: str, still_served: StillServed, what: str
) -> None:
    send(client, run_id, [("reply-partition", WRONG_PARTITIONS[what]), ("correlation-id", b"x")])
    still_served(client.partition_of(run_id))


@pytest.mark.parametrize("partition", [b"0", b"3", b"03", b"00003"])
def test_any_existing_partition_can_be_named(client: BareClient, run_id: str, partition: bytes) -> None:
    correlation_id = new_id().encode()
    headers = [("reply-partition", partition), ("correlation-id", correlation_id)]
    client.post("events.append", run_id, headers=headers, event=EVENT)
    assert client.reply_record(correlation_id).partition == int(partition)


@pytest.mark.parametrize(
    "start", [b"x", b"\0", b"\xff\xfe", b" ", "é".encode(), b"\n", bytes(range(100))], ids=repr
)
def test_a_correlation_id_is_echoed_as_it_is(client: BareClient, run_id: str, start: bytes) -> None:
    correlation_id = start + new_id().encode()
    headers = [("reply-partition", b"2"), ("correlation-id", correlation_id)]
    command_id = client.post("events.append", run_id, headers=headers, event=EVENT)
    record = client.reply_record(correlation_id)
    assert record.key == correlation_id
    assert dict(record.headers)["correlation-id"] == correlation_id
    assert record.json()["commandId"] == command_id


def test_a_correlation_id_may_have_200_bytes(client: BareClient, run_id: str) -> None:
    correlation_id = new_id().encode().ljust(200, b"\x80")
    client.post(
        "events.append",
        run_id,
        headers=[("reply-partition", b"0"), ("correlation-id", correlation_id)],
        event=EVENT,
    )
    assert client.reply_record(correlation_id).json()["ok"] is True


def test_a_correlation_id_of_one_byte_is_enough(client: BareClient, run_id: str) -> None:
    command_id = client.post(
        "events.append", run_id, headers=[("reply-partition", b"0"), ("correlation-id", b"7")], event=EVENT
    )
    assert client.reply_record(b"7").json()["commandId"] == command_id


@pytest.mark.parametrize(
    "correlation_id", [b"", None, b"x" * 201, b"x" * 10_240], ids=["empty", "null", "201", "10 KB"]
)
def test_another_correlation_id_is_refused(
    client: BareClient, run_id: str, still_served: StillServed, correlation_id: bytes | None
) -> None:
    send(client, run_id, [("reply-partition", b"0"), ("correlation-id", correlation_id)])
    still_served(client.partition_of(run_id))


@pytest.mark.parametrize(
    "headers", [[("reply-partition", b"0")], [("correlation-id", b"x")]], ids=lambda h: h[0][0]
)
def test_both_headers_are_there_or_none(
    client: BareClient, run_id: str, still_served: StillServed, headers: Headers
) -> None:
    send(client, run_id, headers)
    still_served(client.partition_of(run_id))


def test_without_a_reply_address_a_command_is_executed_and_not_answered(
    client: BareClient, run_id: str
) -> None:
    command_id = client.post("events.append", run_id, event=EVENT)
    assert client.event(run_id, 1)["commandId"] == command_id
    client.reader.catch_up("replies")
    answered = client.reader.records("replies", lambda record: record.json()["commandId"] == command_id)
    assert answered == []


def test_the_last_header_of_a_name_counts(client: BareClient, run_id: str) -> None:
    correlation_id = new_id().encode()
    headers = [
        ("correlation-id", b""),
        ("reply-partition", b"nonsense"),
        ("correlation-id", b"first"),
        ("reply-partition", b"3"),
        ("correlation-id", correlation_id),
    ]
    client.post("events.append", run_id, headers=headers, event=EVENT)
    assert client.reply_record(correlation_id).partition == 3
    send(client, run_id, [*headers, ("reply-partition", b"nonsense")])


def test_with_a_wrong_reply_address_nothing_is_executed(client: BareClient, run_id: str) -> None:
    send(client, run_id, [("reply-partition", b"77"), ("correlation-id", b"x")])
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_a_command_with_a_wrong_reply_address_is_not_remembered(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    headers = [("reply-partition", b"77"), ("correlation-id", b"x")]
    value = command("events.append", run_id, command_id, event=EVENT)
    client.dead_letter(client.send(value, key=run_id.encode(), headers=headers))
    assert client.append_log(run_id, "again", command_id=command_id)["seq"] == 1


@pytest.mark.parametrize(
    "headers",
    [
        [("x", None)],
        [("x", b"\xff\xfe")],
        [("", b"x")],
        [("é😀", b"x")],
        [("x", b"1"), ("x", b"2"), ("x", None)],
        [("x", b"\0" * 100_000)],
        [(f"h{number}", b"x") for number in range(1000)],
    ],
    ids=["null value", "not UTF-8 value", "empty name", "name", "doubled", "100 KB", "1,000 headers"],
)
def test_other_headers_do_not_matter(
    client: BareClient, run_id: str, still_served: StillServed, headers: Headers
) -> None:
    assert client.append_log(run_id, "x", headers=headers)["seq"] == 1
    still_served(client.partition_of(run_id))


def test_a_header_whose_name_is_not_utf8_does_not_matter(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    correlation_id, address = client.reply_address()
    headers = [(b"\xff\xfe", b"x"), *((name.encode(), value) for name, value in address)]
    partition = client.partition_of(run_id)
    value = command("events.append", run_id, new_id(), event=EVENT)
    client.send_raw(value, key=run_id.encode(), headers=headers, partition=partition)
    assert client.reply_record(correlation_id).json()["result"]["seq"] == 1
    still_served(partition)


def test_a_bad_record_with_a_header_whose_name_is_not_utf8_is_a_dead_letter(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    partition = client.partition_of(run_id)
    offset = client.send_raw(b"{", key=run_id.encode(), headers=[(b"\xc3", b"x")], partition=partition)
    still_served(partition)
    letter = client.dead_letter_at(partition, offset)
    assert dict(letter.headers)["runlane.error.code"] == b"INVALID_JSON"
