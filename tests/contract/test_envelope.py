"""Wire contract, section 1: the envelope of a command."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest

from tests.contract.bare_client import BareClient, command, key_in_partition, new_id
from tests.contract.conftest import StillServed

MIB = 1024 * 1024
LOG = {"type": "log", "line": "hello"}


def body(run_id: str, command_id: str, inside: str) -> bytes:
    """A command whose event has the JSON text `inside` as a field that is ignored."""
    head = json.dumps({"type": "events.append", "commandId": command_id, "runId": run_id, "event": LOG})
    return f'{head[:-1]}, "extra": {inside}}}'.encode("utf-8", "surrogatepass")


def nested(depth: int) -> str:
    """JSON of lists, `depth` deep."""
    return "[" * depth + "]" * depth


def refused(client: BareClient, value: bytes | None, key: bytes | None, code: str) -> dict[str, Any]:
    """Send a record that must be a dead letter with `code`, and answered so; returns the answer."""
    asked = client.ask_bytes(value, key=key)
    letter = client.dead_letter(asked.sent)
    assert dict(letter.headers)["runlane.error.code"] == code.encode()
    assert (letter.key, letter.value) == (key, value)
    answer = client.reply(asked)
    assert answer["ok"] is False
    assert answer["error"]["code"] == code
    assert answer["error"]["message"]
    return answer


NOT_JSON = {
    "empty": b"",
    "only white space": b" \n\t",
    "not UTF-8": b'{"type": "events.append", "x": "\xff\xfe"}',
    "overlong UTF-8": b'{"x": "\xc0\xaf"}',
    "UTF-8 of a surrogate": b'{"x": "\xed\xa0\x80"}',
    "UTF-16": '{"type": "events.append"}'.encode("utf-16"),
    "text": b"hello",
    "cut off": b'{"type": "events.append", "commandId": "x"',
    "two objects": b"{}{}",
    "text behind": b"{} x",
    "single quotes": b"{'type': 'events.append'}",
    "trailing comma": b'{"type": "events.append",}',
    "comment": b'{"type": "events.append" /* no */}',
    "bare name": b'{type: "events.append"}',
    "control character in a string": b'{"x": "a\x01b"}',
    "NUL in a string": b'{"x": "a\0b"}',
    "NUL behind": b"{}\0",
    "zeros": b"\0" * 100,
    "undefined": b'{"x": undefined}',
    "binary": bytes(range(256)),
}
NOT_JSON_INSIDE = {
    "NaN": "NaN",
    "Infinity": "Infinity",
    "minus Infinity": "-Infinity",
    "beyond a double": "1e400",
    "below a double": "-1e400",
    "many digits beyond a double": "1" + "0" * 309 + ".0",
    "2^63": str(2**63),
    "2^64": str(2**64),
    "below -2^63": str(-(2**63) - 1),
    "an integer of 400 digits": "9" * 400,
    "an integer of 5,000 digits": "9" * 5000,
    "a lone high surrogate": r'"\ud800"',
    "a lone low surrogate": r'"\udc00 x"',
    "surrogates in the wrong order": r'"\udc00\ud800"',
    "a lone surrogate in a name": r'{"\ud800": 1}',
    "leading zero": "01",
    "plus sign": "+1",
    "no digit before the point": ".5",
    "no digit behind the point": "1.",
    "hexadecimal": "0x10",
    "wrong escape": r'"\x41"',
    "nesting of 65": nested(64),
    "nesting of 65 by objects": '{"a":' * 64 + "1" + "}" * 64,
    "nesting of 20,000": nested(20_000),
    "nesting without an end": "[" * 100_000,
}
STILL_JSON_INSIDE = {
    "2^63 - 1": str(2**63 - 1),
    "-2^63": str(-(2**63)),
    "the largest double": "1.7976931348623157e308",
    "2^63 as a double": "9223372036854775808.0",
    "smaller than a double": "1e-400",
    "minus zero": "-0",
    "a pair of surrogates": r'"\ud83d\ude00"',
    "an escaped NUL": r'"\u0000"',
    "digits in a string": f'"{"9" * 400}"',
    "brackets in a string": f'"{"[" * 1000}"',
    "NaN in a string": '"NaN"',
    "nesting of 64": nested(63),
    "many neighbours": "[" + ",".join(["[]"] * 5000) + "]",
    "white space": " \r\n\t{ } ",
}


@pytest.mark.parametrize("key", [None, b""], ids=["missing", "empty"])
def test_the_key_must_be_present(
    client: BareClient, run_id: str, still_served: StillServed, key: bytes | None
) -> None:
    refused(client, command("events.append", run_id, new_id(), event=LOG), key, "INVALID_KEY")
    still_served(0)


@pytest.mark.parametrize("what", NOT_JSON)
def test_the_value_must_be_json_in_utf8(
    client: BareClient, run_id: str, still_served: StillServed, what: str
) -> None:
    answer = refused(client, NOT_JSON[what], run_id.encode(), "INVALID_JSON")
    assert answer["commandId"] is None
    still_served(client.partition_of(run_id))


@pytest.mark.parametrize("what", NOT_JSON_INSIDE)
def test_json_is_what_rfc_8259_says_with_these_limits(
    client: BareClient, run_id: str, still_served: StillServed, what: str
) -> None:
    answer = refused(client, body(run_id, new_id(), NOT_JSON_INSIDE[what]), run_id.encode(), "INVALID_JSON")
    assert answer["commandId"] is None
    still_served(client.partition_of(run_id))


@pytest.mark.parametrize("what", STILL_JSON_INSIDE)
def test_json_at_its_limits_is_accepted(client: BareClient, run_id: str, what: str) -> None:
    asked = client.ask_bytes(body(run_id, new_id(), STILL_JSON_INSIDE[what]), key=run_id.encode())
    assert client.reply(asked)["ok"] is True


def test_a_byte_order_mark_is_refused(client: BareClient, run_id: str) -> None:
    value = b"\xef\xbb\xbf" + command("events.append", run_id, new_id(), event=LOG)
    refused(client, value, run_id.encode(), "INVALID_JSON")


def test_a_record_without_a_value_is_refused(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    refused(client, None, run_id.encode(), "INVALID_JSON")
    still_served(client.partition_of(run_id))


@pytest.mark.parametrize(
    "value", [b"[]", b'[{"type": "run.status"}]', b'"run.status"', b"7", b"null", b"true"]
)
def test_the_value_must_be_one_object(client: BareClient, run_id: str, value: bytes) -> None:
    refused(client, value, run_id.encode(), "INVALID_JSON")


def test_of_a_doubled_name_the_last_counts(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    value = json.dumps({"event": {"type": "log", "line": "last"}, "runId": run_id, "commandId": command_id})
    first = '"type": "no.such", "commandId": 1, "runId": "other", "event": 5, "type": "events.append"'
    asked = client.ask_bytes(f"{{{first}, {value[1:]}".encode(), key=run_id.encode())
    answer = client.reply(asked)
    assert (answer["ok"], answer["commandId"]) == (True, command_id)
    assert client.event(run_id, 1)["line"] == "last"


@pytest.mark.parametrize(
    "type_",
    [
        "no.such",
        "",
        "RUN.STATUS",
        " run.status",
        "run.status\0",
        "rate.acquire",
        None,
        5,
        ["run.status"],
        {},
        True,
    ],
)
def test_the_type_must_be_known_on_this_topic(
    client: BareClient, run_id: str, still_served: StillServed, type_: Any
) -> None:
    command_id = new_id()
    value = json.dumps({"type": type_, "commandId": command_id, "runId": run_id}).encode()
    assert refused(client, value, run_id.encode(), "UNKNOWN_COMMAND")["commandId"] == command_id
    still_served(client.partition_of(run_id))


def test_the_type_must_be_there(client: BareClient, run_id: str) -> None:
    value = json.dumps({"commandId": new_id(), "runId": run_id}).encode()
    refused(client, value, run_id.encode(), "UNKNOWN_COMMAND")


@pytest.mark.parametrize("command_id", ["x", "é" * 200, "😀" * 200, " ", "\0", "a\nb"])
def test_a_command_id_has_1_to_200_code_points(client: BareClient, run_id: str, command_id: str) -> None:
    answer = client.call("events.append", run_id, command_id=command_id, event=LOG)
    assert (answer["ok"], answer["commandId"]) == (True, command_id)
    assert client.event(run_id, 1)["commandId"] == command_id


@pytest.mark.parametrize(
    "command_id", ["", "x" * 201, "😀" * 201, "x" * 10_240, None, 5, 1.5, True, ["x"], {}]
)
def test_another_command_id_is_refused_and_null_in_the_reply(
    client: BareClient, run_id: str, still_served: StillServed, command_id: Any
) -> None:
    value = json.dumps(
        {"type": "events.append", "commandId": command_id, "runId": run_id, "event": LOG}
    ).encode()
    assert refused(client, value, run_id.encode(), "INVALID_COMMAND_ID")["commandId"] is None
    still_served(client.partition_of(run_id))


def test_a_command_without_an_id_is_refused(client: BareClient, run_id: str) -> None:
    value = json.dumps({"type": "events.append", "runId": run_id, "event": LOG}).encode()
    assert refused(client, value, run_id.encode(), "INVALID_COMMAND_ID")["commandId"] is None


@pytest.mark.parametrize(
    "given", ["other", "", "{key} ", " {key}", "{key}\0", "{KEY}", None, 5, ["{key}"], {}]
)
def test_the_runs_id_must_equal_the_key(
    client: BareClient, run_id: str, still_served: StillServed, given: Any
) -> None:
    if isinstance(given, str):
        given = given.replace("{key}", run_id).replace("{KEY}", run_id.upper())
    command_id = new_id()
    value = json.dumps(
        {"type": "events.append", "commandId": command_id, "runId": given, "event": LOG}
    ).encode()
    assert refused(client, value, run_id.encode(), "KEY_MISMATCH")["commandId"] == command_id
    still_served(client.partition_of(run_id))


def test_the_runs_id_must_be_there(client: BareClient, run_id: str) -> None:
    value = json.dumps({"type": "events.append", "commandId": new_id(), "event": LOG}).encode()
    refused(client, value, run_id.encode(), "KEY_MISMATCH")


def test_an_id_is_not_normalised(client: BareClient) -> None:
    composed = unicodedata.normalize("NFC", new_id("é"))
    decomposed = unicodedata.normalize("NFD", composed)
    value = command("events.append", composed, new_id(), event=LOG)
    refused(client, value, decomposed.encode(), "KEY_MISMATCH")
    assert client.append_log(composed, "one")["seq"] == 1
    assert client.append_log(decomposed, "another run")["seq"] == 1


def test_an_id_is_not_trimmed(client: BareClient, run_id: str) -> None:
    for variant in (run_id, f" {run_id}", f"{run_id} ", f"{run_id}\n", f"\t{run_id}"):
        assert client.append_log(variant, "a run of its own")["seq"] == 1
        assert client.event(variant, 1)["runId"] == variant


@pytest.mark.parametrize(
    "start",
    [
        "\0",
        "\x01\x02\x1f\x7f",
        "a\0b",
        "\0\xff",
        "\n",
        "\r\n",
        '"\\',
        "😀",
        "\u2028",
        "\ufeff",
        "play/x/run/",
        "ÿ\0",
    ],
)
def test_an_id_may_have_any_characters(client: BareClient, start: str) -> None:
    run_id = start + new_id()
    for seq in (1, 2):
        assert client.append_log(run_id, "x")["seq"] == seq
    assert [event["seq"] for event in client.result("events.list", run_id)["events"]] == [1, 2]
    assert client.event(run_id, 2)["runId"] == run_id


def test_ids_that_begin_alike_are_different_runs(client: BareClient, run_id: str) -> None:
    for variant in (f"{run_id}\0", f"{run_id}\0\0", f"{run_id}\0a", run_id):
        assert client.append_log(variant, variant)["seq"] == 1
    for variant in (f"{run_id}\0", f"{run_id}\0\0", f"{run_id}\0a", run_id):
        assert [event["line"] for event in client.result("events.list", variant)["events"]] == [variant]


@pytest.mark.parametrize("character", ["x", "é", "€", "😀"])
def test_an_id_may_have_512_bytes(client: BareClient, character: str) -> None:
    run_id = new_id()
    run_id += character * ((512 - len(run_id)) // len(character.encode()))
    run_id += "-" * (512 - len(run_id.encode()))
    assert client.append_log(run_id, "long")["seq"] == 1
    assert client.event(run_id, 1)["runId"] == run_id


@pytest.mark.parametrize("size", [513, 10_240, 200_000])
def test_an_id_over_512_bytes_is_refused(client: BareClient, still_served: StillServed, size: int) -> None:
    run_id = new_id().ljust(size, "x")
    refused(client, command("events.append", run_id, new_id(), event=LOG), run_id.encode(), "INVALID_KEY")
    still_served(client.partition_of(run_id))


def test_a_key_that_is_not_utf8_is_refused(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    key = b"\xff\xfe" + run_id.encode()
    refused(client, command("events.append", run_id, new_id(), event=LOG), key, "INVALID_KEY")
    still_served(client.partition_of(key))


def test_the_size_is_checked_first(client: BareClient, still_served: StillServed) -> None:
    answer = refused(client, b"\xff" * (MIB + 1), None, "COMMAND_TOO_LARGE")
    assert answer["commandId"] is None
    still_served(0)


def test_the_key_is_checked_before_the_json_and_the_json_before_the_type(
    client: BareClient, run_id: str
) -> None:
    refused(client, b"not JSON", b"", "INVALID_KEY")
    refused(client, b'{"type": "no.such", "commandId": 5, }', run_id.encode(), "INVALID_JSON")
    refused(client, b'{"type": "no.such", "commandId": 5}', run_id.encode(), "UNKNOWN_COMMAND")
    refused(client, b'{"type": "run.status", "commandId": 5}', run_id.encode(), "INVALID_COMMAND_ID")


def test_a_wrong_envelope_without_a_reply_address_is_a_dead_letter_only(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    sent = client.send(b"not JSON", key=run_id.encode())
    assert dict(client.dead_letter(sent).headers)["runlane.error.code"] == b"INVALID_JSON"
    still_served(sent.partition)
    assert len(client.dead_letters_of(sent)) == 1


def test_a_wrong_envelope_is_not_remembered_as_a_command(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    wrong = json.dumps({"type": "events.append", "commandId": command_id, "runId": "other"}).encode()
    refused(client, wrong, run_id.encode(), "KEY_MISMATCH")
    assert client.append_log(run_id, "the right one", command_id=command_id)["seq"] == 1


def test_a_wrong_envelope_creates_no_run(client: BareClient, run_id: str) -> None:
    value = json.dumps({"type": "events.append", "commandId": "", "runId": run_id, "event": LOG}).encode()
    refused(client, value, run_id.encode(), "INVALID_COMMAND_ID")
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_an_id_that_is_readable_is_echoed_with_a_wrong_key(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    value = command("events.append", run_id, command_id, event=LOG)
    assert refused(client, value, None, "INVALID_KEY")["commandId"] == command_id


def test_bad_records_among_good_ones_of_a_batch_harm_no_other(client: BareClient) -> None:
    run_id = key_in_partition(2, client.partitions)
    producer = client.transactional_producer()
    producer.begin_transaction()
    good = [new_id() for _ in range(20)]
    bad = [
        b"",
        b"{",
        b"\xff",
        None,
        b"[]",
        command("no.such", run_id, new_id()),
        command("events.append", "x", "y"),
    ]
    for number, command_id in enumerate(good):
        line = {"type": "log", "line": str(number)}
        value = command("events.append", run_id, command_id, event=line)
        producer.produce(client.topic("run-commands"), value, run_id.encode(), partition=2)
        producer.produce(
            client.topic("run-commands"),
            bad[number % len(bad)],
            run_id.encode(),
            partition=2,
            headers=[("mark", command_id.encode())],
        )
    producer.commit_transaction()
    client.event(run_id, len(good))
    assert [event["commandId"] for event in client.events(run_id)] == good
    letters = client.settled("dead-letters", run_id.encode())
    assert [dict(letter.headers)["mark"].decode() for letter in letters] == good
