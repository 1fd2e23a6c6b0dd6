"""The envelope of a command (spec wire 1): the order of the checks, and that nothing else is ever raised."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemas.envelope import Envelope, EnvelopeError, Headers, read_envelope
from schemas.errors import ErrorCode
from schemas.replies import ReplyAddress
from schemas.run_commands import RUN_COMMANDS
from tests.property.json_values import VALUES

MAX_BYTES, PARTITIONS = 4096, 4


def read(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Envelope:
    return read_envelope(RUN_COMMANDS, key, value, headers, reply_partitions=PARTITIONS, max_bytes=MAX_BYTES)


def body(**fields: Any) -> bytes:
    return json.dumps({"type": "run.status", "commandId": "c", "runId": "r", **fields}).encode()


def refused(key: bytes | None, value: bytes | None, headers: Headers = ()) -> EnvelopeError:
    with pytest.raises(EnvelopeError) as raised:
        read(key, value, headers)
    return raised.value


ADDRESS = [("reply-partition", b"3"), ("correlation-id", b"\xff\x00id")]

header_values = st.none() | st.binary(max_size=6) | st.sampled_from([b"0", b"3", b"4", b"00000", b"x" * 201])
header_names = st.sampled_from(["reply-partition", "correlation-id", "other"]) | st.text(max_size=4)
bodies = st.builds(
    lambda fields, extra: json.dumps({**extra, **fields}).encode(),
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["run.status", "rate.acquire", 1, None, ["run.status"], {}]),
            "commandId": st.sampled_from(["c", "", "x" * 200, "é" * 201, 7, None, ["c"]]),
            "runId": st.sampled_from(["r", "é", "R", 1, None, {}, True]),
        },
    ),
    st.dictionaries(st.text(max_size=5), VALUES, max_size=3),
)


@given(
    key=st.none() | st.binary(max_size=4) | st.sampled_from([b"r", "é".encode(), b"r" * 513]),
    value=st.none() | st.binary(max_size=40) | bodies | VALUES.map(lambda value: json.dumps(value).encode()),
    headers=st.lists(st.tuples(header_names, header_values), max_size=4),
)
@example(key=b"r", value=body(), headers=[("reply-partition", "٣".encode()), ("correlation-id", b"c")])
@example(key=b"\xed\xa0\x80", value=b'{"runId":"\\ud800"}', headers=[])
def test_nothing_but_an_envelope_error_is_ever_raised(key: Any, value: Any, headers: Any) -> None:
    outcome: Envelope | EnvelopeError
    try:
        outcome = read(key, value, headers)
    except EnvelopeError as error:
        outcome = error
    if isinstance(outcome, EnvelopeError):
        assert 0 < len(outcome.message) < 1024
    else:
        assert outcome.key.encode() == key
        assert outcome.body["runId"] == outcome.key
        assert outcome.type in RUN_COMMANDS.by_type
        assert 1 <= len(outcome.command_id) <= 200


# What can be wrong, in the order in which it is looked at, and how to make it so.
DEFECTS: list[tuple[str, ErrorCode]] = [
    ("value is too large", ErrorCode.COMMAND_TOO_LARGE),
    ("key is missing", ErrorCode.INVALID_KEY),
    ("value is not JSON", ErrorCode.INVALID_JSON),
    ("type is unknown", ErrorCode.UNKNOWN_COMMAND),
    ("command id is empty", ErrorCode.INVALID_COMMAND_ID),
    ("run id is not the key", ErrorCode.KEY_MISMATCH),
    ("address is half", ErrorCode.INVALID_REPLY_ADDRESS),
]


@given(st.sets(st.sampled_from([name for name, _ in DEFECTS])), st.booleans())
def test_the_first_thing_that_is_wrong_is_told(defects: set[str], addressed: bool) -> None:
    key = None if "key is missing" in defects else b"r"
    value = body(
        type="run.what" if "type is unknown" in defects else "run.status",
        commandId="" if "command id is empty" in defects else "c",
        runId="q" if "run id is not the key" in defects else "r",
        padding="x" * MAX_BYTES if "value is too large" in defects else "",
    )
    if "value is not JSON" in defects:
        value = value[:-1]
    headers = ADDRESS if addressed else []
    if "address is half" in defects:
        headers = ADDRESS[:1]
    expected = next((code for name, code in DEFECTS if name in defects), None)
    if expected is None:
        envelope = read(key, value, headers)
        assert envelope.reply_to == (ReplyAddress(3, b"\xff\x00id") if addressed else None)
        assert (envelope.type, envelope.command_id, envelope.key) == ("run.status", "c", "r")
        return
    error = refused(key, value, headers)
    assert error.code is expected
    usable = addressed and "address is half" not in defects
    assert error.reply_to == (ReplyAddress(3, b"\xff\x00id") if usable else None)
    unread = defects & {"value is too large", "value is not JSON", "command id is empty"}
    assert error.command_id == (None if unread else "c")


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        (None, body(), ErrorCode.INVALID_KEY),
        (b"", body(runId=""), ErrorCode.INVALID_KEY),
        (b"r" * 513, body(runId="r" * 513), ErrorCode.INVALID_KEY),
        (b"\xff", body(), ErrorCode.INVALID_KEY),
        (b"r", None, ErrorCode.INVALID_JSON),
        (b"r", b"", ErrorCode.INVALID_JSON),
        (b"r", b"[]", ErrorCode.INVALID_JSON),
        (b"r", b'"r"', ErrorCode.INVALID_JSON),
        (b"r", b"\xef\xbb\xbf" + body(), ErrorCode.INVALID_JSON),
        (b"r", body()[:-1] + b',"x":NaN}', ErrorCode.INVALID_JSON),
        (b"r", body()[:-1] + b',"x":1e400}', ErrorCode.INVALID_JSON),
        (b"r", body()[:-1] + b',"x":9223372036854775808}', ErrorCode.INVALID_JSON),
        (b"r", body()[:-1] + b',"x":"\\ud800"}', ErrorCode.INVALID_JSON),
        (b"r", body()[:-1] + b',"x":' + b"[" * 64 + b"]" * 64 + b"}", ErrorCode.INVALID_JSON),
        (b"r", body(type=None), ErrorCode.UNKNOWN_COMMAND),
        (b"r", body(type="rate.acquire"), ErrorCode.UNKNOWN_COMMAND),
        (b"r", body(type="Run.status"), ErrorCode.UNKNOWN_COMMAND),
        (b"r", body(type=["run.status"]), ErrorCode.UNKNOWN_COMMAND),
        (b"r", body(commandId=None), ErrorCode.INVALID_COMMAND_ID),
        (b"r", body(commandId=1), ErrorCode.INVALID_COMMAND_ID),
        (b"r", body(commandId=""), ErrorCode.INVALID_COMMAND_ID),
        (b"r", body(commandId="😀" * 201), ErrorCode.INVALID_COMMAND_ID),
        (b"r", body(runId="R"), ErrorCode.KEY_MISMATCH),
        (b"r", body(runId=" r"), ErrorCode.KEY_MISMATCH),
        (b"r", body(runId=None), ErrorCode.KEY_MISMATCH),
        (b"1", body(runId=1), ErrorCode.KEY_MISMATCH),
        ("e\u0301".encode(), body(runId="\u00e9"), ErrorCode.KEY_MISMATCH),
    ],
)
def test_wrong_envelopes(key: bytes | None, value: bytes | None, code: ErrorCode) -> None:
    assert refused(key, value).code is code


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"r", body(commandId="😀" * 200)),
        (b"r" * 512, body(runId="r" * 512)),
        (b" \x00\n", body(runId=" \x00\n")),
        ("e\u0301😀".encode(), body(runId="e\u0301😀")),
        (b"r", body()[:-1] + b',"x":' + b"[" * 63 + b"]" * 63 + b"}"),
        (b"r", b'{"type":1,"commandId":"a","runId":"q",' + body()[1:]),
        (b"r", body(unknown={"x": 1})),
    ],
)
def test_right_envelopes(key: bytes, value: bytes) -> None:
    envelope = read(key, value)
    assert envelope.key.encode() == key
    assert envelope.reply_to is None


def test_the_size_limit_is_the_last_size_that_fits() -> None:
    padding = MAX_BYTES - len(body(padding=""))
    assert read(b"r", body(padding="x" * padding)).command_id == "c"
    assert refused(b"r", body(padding="x" * (padding + 1))).code is ErrorCode.COMMAND_TOO_LARGE


@pytest.mark.parametrize(
    "headers",
    [
        [("reply-partition", b"1")],
        [("correlation-id", b"c")],
        [("reply-partition", None), ("correlation-id", b"c")],
        [("reply-partition", b"1"), ("correlation-id", None)],
        [("reply-partition", b"1"), ("correlation-id", b"")],
        [("reply-partition", b"1"), ("correlation-id", b"c" * 201)],
        [("reply-partition", b""), ("correlation-id", b"c")],
        [("reply-partition", b"4"), ("correlation-id", b"c")],
        [("reply-partition", b"000001"), ("correlation-id", b"c")],
        [("reply-partition", b"-1"), ("correlation-id", b"c")],
        [("reply-partition", b" 1"), ("correlation-id", b"c")],
        [("reply-partition", b"1.0"), ("correlation-id", b"c")],
        [("reply-partition", b"\xd9\xa3"), ("correlation-id", b"c")],
        [("reply-partition", b"1"), ("correlation-id", b"c"), ("reply-partition", b"x")],
    ],
)
def test_wrong_reply_addresses(headers: Headers) -> None:
    error = refused(b"r", body(), headers)
    assert error.code is ErrorCode.INVALID_REPLY_ADDRESS
    assert error.reply_to is None


@pytest.mark.parametrize(
    ("headers", "address"),
    [
        ([("reply-partition", b"00003"), ("correlation-id", b"c" * 200)], ReplyAddress(3, b"c" * 200)),
        ([("correlation-id", b"\xff"), ("x", None), ("reply-partition", b"0")], ReplyAddress(0, b"\xff")),
        (
            [("reply-partition", b"x"), ("correlation-id", b"a"), *ADDRESS],
            ReplyAddress(3, b"\xff\x00id"),
        ),
        ([("Reply-Partition", b"0")], None),
    ],
)
def test_right_reply_addresses(headers: Headers, address: ReplyAddress | None) -> None:
    assert read(b"r", body(), headers).reply_to == address


@given(VALUES)
def test_messages_quote_no_value(secret: Any) -> None:
    marked = {"secret": ["s3cr3t", secret]}
    for value in (body(type=marked), body(commandId=marked), body(runId=marked), b'{"s3cr3t":"s3cr3t",'):
        assert "s3cr3t" not in refused(b"r", value).message
