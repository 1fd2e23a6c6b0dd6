"""Sessions in the clear: what counts as one, and that nothing which is written about one shows it (spec wire 5, 8)."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import dead_letters
from schemas.encrypted_sessions import EncryptedSession, open_session
from schemas.errors import ErrorCode
from schemas.open_sessions import may_hold_open_session
from schemas.secret_patterns import looks_secret
from streams.lane_records import dead_letter_record
from streams.ports import CommandRecord
from tests.property.json_values import VALUES
from tests.sealed_sessions import sealed

SECRET = "hunter2-s3cr3t"
URL = f"postgres://app:{SECRET}@db.internal:5432/main"


def in_base64(text: str) -> str:
    return b64encode(text.encode()).decode()


OPEN: dict[str, Any] = {
    "a URL": URL,
    "a list of URLs": [URL],
    "a URL in a field of its own": [{**sealed(), "url": URL}],
    "a field that is named by a secret": [{**sealed(), URL: 1}],
    "a URL as name": [{**sealed(), "name": URL}],
    "a token as key id": [{**sealed(), "keyId": "ghp_" + "a1B2" * 9}],
    "a URL as ciphertext": [{**sealed(), "ciphertext": URL}],
    "a URL in base64 as ciphertext": [{**sealed(), "ciphertext": in_base64(URL)}],
    "a URL in base64 with bytes where the tag is": [
        {**sealed(), "ciphertext": b64encode(URL.encode() + bytes(range(240, 256))).decode()}
    ],
    "a URL in UTF-16 as ciphertext": [{**sealed(), "ciphertext": b64encode(URL.encode("utf-16")).decode()}],
    "another algorithm": [{**sealed(), "algorithm": "none"}],
    "no nonce": [{name: value for name, value in sealed().items() if name != "nonce"}],
    "a short nonce": [{**sealed(), "nonce": in_base64("short")}],
    "a nonce of 11 bytes": [{**sealed(), "nonce": "A" * 15 + "="}],
    "a ciphertext that is no base64": [{**sealed(), "ciphertext": "A" * 25}],
    "a ciphertext of a tag alone": [{**sealed(), "ciphertext": b64encode(bytes(15)).decode()}],
    "the second of two": [sealed(), {"password": SECRET}],
    "too many": [sealed()] * 101,
    "an object": {"main": sealed()},
    "null among them": [None],
}


@pytest.mark.parametrize("what", OPEN)
def test_what_is_not_encrypted_is_found_and_not_shown(what: str) -> None:
    problem = open_session(OPEN[what])
    assert problem is not None
    assert len(problem) < 300
    assert SECRET not in problem
    assert "ghp_" not in problem


def test_encrypted_sessions_are_let_through() -> None:
    assert open_session([]) is None
    assert open_session([sealed("a"), sealed("b.c-d_1")]) is None
    assert open_session([sealed()] * 100) is None


@given(VALUES)
def test_any_json_is_judged_and_only_the_schema_passes(value: Any) -> None:
    if open_session(value) is None:
        assert all(EncryptedSession.model_validate(session) for session in value)


@given(st.text(), st.text())
def test_a_url_with_a_password_looks_secret_wherever_it_stands(before: str, after: str) -> None:
    assert looks_secret(before + URL + after)


@pytest.mark.parametrize(
    "text",
    [
        "password=x",
        'dbname=a password = "x"',
        '{"token": "abc"}',
        "api_key: 1",
        "DB_PASSWORD=x",
        '{"clientSecret": "x"}',
        "aws_secret_access_key = x",
        "secretKey: x",
        "SMTP_PASS=x",
        '{"dbPass": "x"}',
        "passphrase=x",
        "Authorization: Basic eDp5",
        "AccountKey=eDp5",
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN RSA PRIVATE KEY-----",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
        "xoxb-1",
        "sk_live_abc",
    ],
)
def test_well_known_forms_of_secrets(text: str) -> None:
    assert looks_secret(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "main",
        "key-2025.01",
        "https://example.com/a:b",
        "the token bucket",
        "mail@x",
        "bypass=1",
        "max_tokens=5",
    ],
)
def test_what_is_no_secret(text: str) -> None:
    assert not looks_secret(text)


def of(type_: str, **fields: Any) -> bytes:
    return json.dumps({"type": type_, "commandId": "c", "runId": "r", **fields}).encode()


WITHHELD = {
    "open sessions": of("sessions.put", sessions=[{"url": URL}]),
    "open sessions of a submit": of("run.submit", name="x", sessions=URL),
    "open sessions of an unknown command": of("session.store", sessions=[{"url": URL}]),
    "a misspelt field": of("sessions.put", session=[{"url": URL}]),
    "a secret by its name": of("launch.put", db={"password": SECRET}),
    "cut off": of("sessions.put", sessions=[{"url": URL}])[:-5],
    "a Python dict": str({"type": "sessions.put", "sessions": [{"url": URL}]}).encode(),
    "a list": json.dumps([{"sessions": [1]}, URL]).encode(),
    "escaped letters": of("run.submit", sessions=[{"url": URL}]).replace(b"sess", b"\\u0073ess"),
    "another name of the field": of("run.submit", name="x", dbSessions=[{"url": URL}]),
    "UTF-16": of("run.submit", sessions=[{"url": URL}]).decode().encode("utf-16"),
    "names without quotes": f"{{type: run.submit, sessions: [{{url: {URL}}}]}}".encode(),
    "too large": of("sessions.put", sessions=[{"url": URL * 50_000}]),
}
KEPT = {
    "encrypted": of("sessions.put", sessions=[sealed()]),
    "no sessions": of("sessions.get"),
    "parameters with a URL": of("run.submit", name="x", params={"url": URL}),
    "a log line about sessions": of("events.append", event={"type": "log", "line": "2 sessions, token=1"}),
    "escaped letters elsewhere": of("run.submit", name="\u00e9", params={"url": URL}),
    "a number of sessions": of("run.submit", name="x", params={"sessions": 2}),
    "not JSON": b"\xff sessions",
    "nothing": None,
}


@pytest.mark.parametrize("what", WITHHELD)
def test_a_dead_letter_leaves_out_what_may_be_in_the_clear(what: str) -> None:
    value = WITHHELD[what]
    assert may_hold_open_session(value)
    record = CommandRecord("run-commands", 1, 2, 3, b"r", value, [("own", b"1")])
    trace = f'Traceback:\n  File "a.py", line 1, in f\n    raise KeyError(url)\nKeyError: {URL!r}\n'
    letter = dead_letter_record(record, "t-run-commands", ErrorCode.INTERNAL_ERROR, "KeyError", trace)
    headers = dict(letter.headers or ())
    assert (letter.key, letter.value, headers["own"]) == (b"r", None, b"1")
    assert headers[dead_letters.VALUE_WITHHELD] == b"sessions"
    assert headers[dead_letters.VALUE_BYTES] == b"%d" % len(value)
    assert headers[dead_letters.TRACEBACK] == b'  File "a.py", line 1, in f'
    assert SECRET.encode() not in b"".join(found or b"" for found in headers.values())


@pytest.mark.parametrize("what", KEPT)
def test_a_dead_letter_keeps_everything_else(what: str) -> None:
    value = KEPT[what]
    assert not may_hold_open_session(value)
    record = CommandRecord("run-commands", 1, 2, 3, b"r", value, ())
    letter = dead_letter_record(record, "t", ErrorCode.INTERNAL_ERROR, "KeyError", "KeyError: 'x'")
    assert letter.value == value
    assert dict(letter.headers or ())[dead_letters.TRACEBACK] == b"KeyError: 'x'"
    assert dead_letters.VALUE_WITHHELD not in dict(letter.headers or ())


def test_records_do_not_show_their_values() -> None:
    record = CommandRecord("run-commands", 1, 2, 3, b"r", URL.encode(), [("h", URL.encode())])
    letter = dead_letter_record(record, "t", ErrorCode.INVALID_JSON, "no JSON")
    assert SECRET not in repr(record) + repr(letter)
