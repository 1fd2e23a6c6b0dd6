"""Wire contract, section 5: dead letters."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.contract.bare_client import BareClient, command, new_id
from tests.contract.topic_reader import Record
from tests.worker_process import RUNLANE, worker_environment

SECRET = "s3cr3t-do-not-quote"


def ours(letter: Record) -> dict[str, bytes | None]:
    """The headers of ours."""
    return {name: value for name, value in letter.headers if name.startswith("runlane.")}


def test_original_headers_come_first_then_ours(client: BareClient, run_id: str) -> None:
    headers = [
        ("b", b"1"),
        ("a", None),
        ("b", b""),
        ("bytes", b"\xff\x00\xfe"),
        ("ünï", "ü".encode()),
        ("runlane.error.code", b"of an earlier life"),
        *client.reply_address()[1],
    ]
    letter = client.dead_letter(client.send(b"{", key=run_id.encode(), headers=headers))
    assert letter.headers[: len(headers)] == tuple(headers)
    added = letter.headers[len(headers) :]
    assert [name for name, _ in added] == [
        "runlane.error.code",
        "runlane.error.message",
        "runlane.error.topic",
        "runlane.error.partition",
        "runlane.error.offset",
        "runlane.error.timestamp",
    ]


def test_our_headers_are_utf8_with_numbers_in_ascii_decimal(client: BareClient, run_id: str) -> None:
    sent = client.send(b"{", key=run_id.encode())
    headers = ours(client.dead_letter(sent))
    message = headers.pop("runlane.error.message")
    assert message is not None
    assert message.decode()
    assert headers == {
        "runlane.error.code": b"INVALID_JSON",
        "runlane.error.topic": client.topic("run-commands").encode(),
        "runlane.error.partition": str(sent.partition).encode(),
        "runlane.error.offset": str(sent.offset).encode(),
        "runlane.error.timestamp": str(sent.timestamp).encode(),
    }


@pytest.mark.parametrize("key", [None, b"", b"k", b"\xff\x00\xfe"], ids=repr)
@pytest.mark.parametrize("value", [None, b"", b"\xff\x00\xfe", b" {} "], ids=repr)
def test_key_and_value_are_unchanged(client: BareClient, key: bytes | None, value: bytes | None) -> None:
    letter = client.dead_letter(client.send(value, key=key))
    assert (letter.key, letter.value) == (key, value)


@pytest.mark.parametrize("partition", range(4))
def test_a_dead_letter_is_in_the_partition_that_it_was_read_from(
    client: BareClient, run_id: str, partition: int
) -> None:
    sent = client.send(b"{", key=run_id.encode(), partition=partition)
    assert client.dead_letter(sent).partition == partition


def secrets(run_id: str) -> dict[str, tuple[bytes | None, bytes]]:
    """Key and value of records that must be refused, each with a secret at the place of the fault."""
    key = run_id.encode()

    def value(**fields: Any) -> bytes:
        return json.dumps({"type": "run.status", "commandId": new_id(), "runId": run_id, **fields}).encode()

    return {
        "not JSON": (key, f"{SECRET} {{".encode()),
        "no object": (key, json.dumps(SECRET).encode()),
        "not UTF-8": (key, f'{{"{SECRET}": "'.encode() + b'\xff"}'),
        "too large an integer": (key, value(x=SECRET)[:-1] + b', "y": 99999999999999999999}'),
        "the type": (key, value(type=SECRET)),
        "the command id": (key, value(commandId=SECRET * 20)),
        "the run id": (key, value(runId=SECRET)),
        "the key": (SECRET.encode() + key, value()),
        "a long key": (SECRET.encode() * 100, value()),
        "a key that is not UTF-8": (SECRET.encode() + b"\xff", value()),
    }


@pytest.mark.parametrize("what", secrets(""))
def test_the_message_is_at_most_1_kib_and_never_quotes_values(
    client: BareClient, run_id: str, what: str
) -> None:
    key, value = secrets(run_id)[what]
    asked = client.ask_bytes(value, key=key)
    message = ours(client.dead_letter(asked.sent))["runlane.error.message"]
    assert message is not None
    assert len(message) <= 1024
    assert SECRET.encode() not in message
    assert SECRET not in client.reply(asked)["error"]["message"]


def test_the_message_quotes_no_reply_address(client: BareClient, run_id: str) -> None:
    for headers in (
        [("reply-partition", SECRET.encode()), ("correlation-id", b"x")],
        [("reply-partition", b"0"), ("correlation-id", SECRET.encode() * 20)],
        [("correlation-id", SECRET.encode())],
    ):
        sent = client.send(command("run.status", run_id, new_id()), key=run_id.encode(), headers=headers)
        message = ours(client.dead_letter(sent))["runlane.error.message"]
        assert message is not None
        assert SECRET.encode() not in message


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        ("events.append", {"event": SECRET}),
        ("events.append", {"event": {"type": SECRET}}),
        ("events.append", {"event": {"type": SECRET * 500}}),
        ("events.append", {"event": {"type": "log", "line": [SECRET]}}),
        ("events.append", {"event": {"type": "terminal", "status": SECRET}}),
        ("terminal.set", {"status": SECRET}),
        ("run.submit", {"name": [SECRET]}),
        ("run.submit", {"name": "x", "params": SECRET, "paramsRef": SECRET}),
        ("run.submit", {"name": "x", "sessions": [{"password": SECRET}]}),
    ],
)
def test_a_refusal_for_wrong_fields_quotes_no_values_either(
    client: BareClient, run_id: str, type_: str, fields: dict[str, Any]
) -> None:
    error = client.refusal(type_, run_id, **fields)
    assert SECRET not in json.dumps(error)
    assert len(error["message"]) <= 1024


def test_a_dead_letter_sent_again_as_it_is_is_a_command_like_any_other(
    client: BareClient, run_id: str
) -> None:
    command_id = new_id()
    value = command("events.append", run_id, command_id, event={"type": "log", "line": "x"})
    wrong = [("reply-partition", b"77"), ("correlation-id", b"x"), ("kept", b"1")]
    letter = client.dead_letter(client.send(value, key=run_id.encode(), headers=wrong))
    correlation_id, address = client.reply_address()
    client.send(letter.value, key=letter.key, headers=[*letter.headers, *address])
    assert client.reply_record(correlation_id).json()["result"]["seq"] == 1
    assert client.event(run_id, 1)["commandId"] == command_id


def test_replaying_strips_our_headers_and_keeps_the_rest(
    client: BareClient, run_id: str, broker: str, prefix: str
) -> None:
    headers = [
        ("b", b"1"),
        ("null", None),
        ("runlane.note", b"stripped too"),
        ("bytes", b"\xff\x00"),
        ("b", b"2"),
        *client.reply_address()[1],
    ]
    letter = client.dead_letter(client.send(b"\xff not JSON", key=run_id.encode(), headers=headers))
    place = f"{letter.partition}:{letter.offset}"
    done = subprocess.run(
        [str(RUNLANE), "dead-letters", "replay", place, "--yes"],
        env=worker_environment(RUNLANE_BROKERS=broker, RUNLANE_PREFIX=prefix),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    again = client.reader.wait(
        "run-commands", lambda record: record.key == run_id.encode(), count=2, what="the replayed record"
    )[-1]
    kept = tuple(header for header in headers if not header[0].startswith("runlane."))
    assert (again.key, again.value, again.headers) == (run_id.encode(), b"\xff not JSON", kept)
    client.dead_letter_at(again.partition, again.offset)
