"""Wire contract, sections 7 and 8: retry and launch state, sessions, instances."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.contract.bare_client import BareClient, new_id
from tests.contract.conftest import ExpiringRun
from tests.sealed_sessions import sealed

HOUR = 3_600_000
MAX_BYTES = 110_000
EMPTY_STATE_BYTES = len(b'{"params":"","paramsRef":null,"paramsBytes":null}')
PATIENCE_S = 120.0

WRITES: dict[str, dict[str, Any]] = {
    "retry.put": {"params": None},
    "launch.put": {"params": None, "sessions": []},
    "sessions.put": {"sessions": []},
    "instance.put": {"instanceId": "i"},
}


def at(client: BareClient, type_: str, run_id: str, **fields: Any) -> tuple[int, dict[str, Any]]:
    """The time and the result of a command that must succeed."""
    asked = client.ask(type_, run_id, **fields)
    answer = client.reply(asked)
    assert answer["ok"] is True, answer
    return asked.sent.timestamp, answer["result"]


@pytest.mark.parametrize("type_", WRITES)
def test_a_write_makes_the_run_known_as_running_without_an_event(
    client: BareClient, run_id: str, type_: str
) -> None:
    client.result(type_, run_id, **WRITES[type_])
    status = client.result("run.status", run_id)
    assert (status["status"], status["latestSeq"]) == ("running", 0)
    assert client.result("run.submit", run_id, name="x")["seq"] == 1


@pytest.mark.parametrize("type_", [*WRITES, "retry.claim"])
def test_after_the_end_writes_are_refused_with_the_end(client: BareClient, run_id: str, type_: str) -> None:
    client.result("run.cancel", run_id)
    error = client.refusal(type_, run_id, **{"maxAttempts": 1, **WRITES.get(type_, {})})
    assert error["code"] == "RUN_ENDED"
    assert error["terminal"]["status"] == "cancelled"


def test_retry_put(client: BareClient, run_id: str) -> None:
    now, result = at(client, "retry.put", run_id, params={"day": "é"}, paramsBytes=12)
    stored = json.dumps(
        {"params": {"day": "é"}, "paramsRef": None, "paramsBytes": 12},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    assert result == {
        "bytes": len(stored.encode()),
        "expiresAt": result["expiresAt"],
        "retryAttempts": 0,
    }
    assert result["expiresAt"] >= now + HOUR


@pytest.mark.parametrize(
    ("ttl", "kept"), [(0, 60_000), (60_001, 60_001), (10 * HOUR, HOUR), ("5", HOUR), (None, HOUR)]
)
def test_how_long_the_state_is_kept_is_limited(client: BareClient, run_id: str, ttl: Any, kept: int) -> None:
    now, result = at(client, "retry.put", run_id, params=1, ttlMs=ttl)
    assert now + kept <= result["expiresAt"] < now + kept + 60_000
    now, result = at(client, "launch.put", run_id, params=1, sessions=[], retryTtlMs=ttl)
    assert now + kept <= result["retryExpiresAt"] < now + kept + 60_000


@pytest.mark.parametrize("type_", ["retry.put", "launch.put"])
def test_params_or_params_ref_has_to_be_there_if_only_as_null(
    client: BareClient, run_id: str, type_: str
) -> None:
    more = {"sessions": []} if type_ == "launch.put" else {}
    assert client.refusal(type_, run_id, paramsBytes=1, **more)["code"] == "RETRY_STATE_REQUIRED"
    for fields in ({"params": None}, {"paramsRef": None}, {"params": 1, "paramsRef": {"k": 1}}):
        client.result(type_, run_id, **fields, **more)


@pytest.mark.parametrize("type_", ["retry.put", "launch.put"])
def test_the_limit_counts_bytes_of_utf_8_and_both_numbers_are_said(
    client: BareClient, run_id: str, type_: str
) -> None:
    more: dict[str, Any] = {"sessions": [sealed()]} if type_ == "launch.put" else {}
    room = MAX_BYTES - EMPTY_STATE_BYTES
    # An e with an acute accent is one character and two bytes.
    fits = "é" * (room // 2) + "x" * (room % 2)
    error = client.refusal(type_, run_id, params=fits + "x", **more)
    assert error["code"] == "RETRY_STATE_TOO_LARGE"
    assert (error["bytes"], error["maxBytes"]) == (MAX_BYTES + 1, MAX_BYTES)
    assert str(MAX_BYTES + 1) in error["message"]
    assert str(MAX_BYTES) in error["message"]
    # Neither was stored.
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    assert client.refusal("sessions.get", run_id)["code"] == "SESSIONS_NOT_FOUND"
    client.result(type_, run_id, params=fits, **more)
    assert client.result("retry.claim", run_id, maxAttempts=0)["params"] == fits


def test_retry_claim_gives_as_many_attempts_as_it_is_told(client: BareClient, run_id: str) -> None:
    reference = {"storageKind": "s3", "storageKey": "k"}
    client.result("retry.put", run_id, params={"a": [1, None]}, paramsRef=reference, paramsBytes=9, ttlMs=0)
    stored = {"params": {"a": [1, None]}, "paramsRef": reference, "paramsBytes": 9}
    for attempt in (1, 2):
        claim = client.result("retry.claim", run_id, maxAttempts=2)
        assert claim == {"claimed": True, "attempts": attempt, **stored}
    assert client.result("retry.claim", run_id, maxAttempts=2) == {"claimed": False, "attempts": 2, **stored}
    assert client.result("retry.claim", run_id, maxAttempts=3)["attempts"] == 3


def test_retry_claim_without_a_state_stores_nothing(client: BareClient, run_id: str) -> None:
    assert client.result("retry.claim", run_id, maxAttempts=3) == {"claimed": False, "attempts": 0}
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


@pytest.mark.parametrize("wrong", [None, "3", True, [3]])
def test_retry_claim_needs_a_number_of_attempts(client: BareClient, run_id: str, wrong: Any) -> None:
    error = client.refusal("retry.claim", run_id, maxAttempts=wrong)
    assert error["code"] == "INVALID_COMMAND"
    assert error["message"].startswith("maxAttempts")


def test_a_repeated_claim_takes_no_second_attempt(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    client.result("retry.put", run_id, params={"large": "x" * 5000})
    first = client.result("retry.claim", run_id, command_id=command_id, maxAttempts=5)
    assert client.result("retry.claim", run_id, command_id=command_id, maxAttempts=5) == first
    assert client.result("retry.claim", run_id, maxAttempts=5)["attempts"] == 2


def test_putting_again_keeps_the_attempts(client: BareClient, run_id: str) -> None:
    client.result("retry.put", run_id, params=1)
    client.result("retry.claim", run_id, maxAttempts=5)
    assert client.result("retry.put", run_id, params=2)["retryAttempts"] == 1
    client.result("launch.put", run_id, params=3, sessions=[])
    claim = client.result("retry.claim", run_id, maxAttempts=5)
    assert (claim["attempts"], claim["params"]) == (2, 3)


def test_launch_put_stores_both(client: BareClient, run_id: str) -> None:
    sessions = [sealed("main"), sealed("audit")]
    now, result = at(client, "launch.put", run_id, params=1, sessions=sessions)
    assert set(result) == {"sessionCount", "retryExpiresAt", "dbSessionsExpiresAt"}
    assert result["sessionCount"] == 2
    assert result["retryExpiresAt"] >= now + HOUR
    assert now + 600_000 <= result["dbSessionsExpiresAt"] < now + 660_000
    found = client.result("sessions.get", run_id)
    assert found == {"sessions": sessions, "expiresAt": result["dbSessionsExpiresAt"]}
    assert client.result("retry.claim", run_id, maxAttempts=0)["params"] == 1


def test_launch_put_needs_sessions(client: BareClient, run_id: str) -> None:
    error = client.refusal("launch.put", run_id, params=1)
    assert error["code"] == "INVALID_COMMAND"
    assert error["message"].startswith("sessions")


@pytest.mark.parametrize(
    ("ttl", "kept"),
    [(0, 60_000), (60_001, 60_001), (HOUR, 1_800_000), ([], 600_000), (None, 600_000)],
)
def test_how_long_sessions_are_kept_is_limited(client: BareClient, run_id: str, ttl: Any, kept: int) -> None:
    now, result = at(client, "sessions.put", run_id, sessions=[sealed()], ttlMs=ttl)
    assert set(result) == {"sessionCount", "expiresAt"}
    assert now + kept <= result["expiresAt"] < now + kept + 60_000
    now, result = at(client, "launch.put", run_id, params=1, sessions=[], dbSessionsTtlMs=ttl)
    assert now + kept <= result["dbSessionsExpiresAt"] < now + kept + 60_000


def test_sessions_put_replaces_those_that_the_run_had(client: BareClient, run_id: str) -> None:
    client.result("sessions.put", run_id, sessions=[sealed("a"), sealed("b")])
    result = client.result("sessions.put", run_id, sessions=[sealed("c")])
    assert result["sessionCount"] == 1
    found = client.result("sessions.get", run_id)
    assert found == {"sessions": [sealed("c")], "expiresAt": result["expiresAt"]}


def test_unknown_sessions_are_not_found(client: BareClient, run_id: str) -> None:
    assert client.refusal("sessions.get", run_id)["code"] == "SESSIONS_NOT_FOUND"
    client.result("run.submit", run_id, name="x")
    assert client.refusal("sessions.get", run_id)["code"] == "SESSIONS_NOT_FOUND"


def test_run_submit_stores_sessions_with_the_dispatch(client: BareClient, run_id: str) -> None:
    client.result("run.submit", run_id, name="x", sessions=[sealed()])
    assert client.result("sessions.get", run_id)["sessions"] == [sealed()]
    (dispatch,) = client.settled("run-dispatch", run_id.encode())
    assert "sessions" not in dispatch.json()
    client.result("run.submit", run_id, name="x", sessions=[])
    assert client.result("sessions.get", run_id)["sessions"] == [sealed()]


@pytest.mark.parametrize(
    "sessions",
    [
        "x",
        {},
        [{}],
        [None],
        [{**sealed(), "url": "x"}],
        [{**sealed(), "algorithm": "none"}],
        [sealed()] * 101,
    ],
    ids=["text", "object", "empty", "null", "another field", "another algorithm", "101"],
)
@pytest.mark.parametrize("type_", ["sessions.put", "launch.put", "run.submit"])
def test_what_is_not_encrypted_is_refused_and_nothing_is_stored(
    client: BareClient, run_id: str, type_: str, sessions: Any
) -> None:
    asked = client.ask(type_, run_id, name="x", params=1, sessions=sessions)
    error = client.reply(asked)["error"]
    assert error["code"] == "SESSION_NOT_ENCRYPTED"
    assert client.dead_letters_of(asked.sent) == []
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    assert client.settled("run-dispatch", run_id.encode()) == []


def test_instance_put_and_get(client: BareClient, run_id: str) -> None:
    assert client.result("instance.get", run_id) == {"instance": None}
    record = {"instanceId": "i-1", "attempt": None, "ttlMs": HOUR}
    assert client.result("instance.put", run_id, instanceId="i-1") == {"instance": record}
    assert client.result("instance.get", run_id) == {"instance": record}
    record = {"instanceId": "i-2", "attempt": 2, "ttlMs": 60_000}
    assert client.result("instance.put", run_id, instanceId="i-2", attempt=2, ttlMs=5) == {"instance": record}
    assert client.result("instance.get", run_id) == {"instance": record}
    assert client.result("instance.get", new_id()) == {"instance": None}


@pytest.mark.parametrize("wrong", [None, "", 5, "x" * 201])
def test_instance_put_needs_an_instance(client: BareClient, run_id: str, wrong: Any) -> None:
    error = client.refusal("instance.put", run_id, instanceId=wrong)
    assert error["code"] == "INVALID_COMMAND"
    assert error["message"].startswith("instanceId")


def test_a_recorded_attempt_is_the_one_that_may_write(client: BareClient, run_id: str) -> None:
    first = client.result("run.submit", run_id, name="x")["instanceId"]
    client.append_log(run_id, "by the first", instanceId=first, attempt=1)
    retry = f"{first}-retry-1"
    client.result("instance.put", run_id, instanceId=retry, attempt=2)
    event = {"type": "log", "line": "late"}
    error = client.refusal("events.append", run_id, event=event, instanceId=first, attempt=1)
    assert error["code"] == "ATTEMPT_SUPERSEDED"
    client.append_log(run_id, "by the second", instanceId=retry, attempt=2)
    error = client.refusal("instance.put", run_id, instanceId=first, attempt=1)
    assert error["code"] == "ATTEMPT_SUPERSEDED"


def test_an_instance_without_an_attempt_supersedes_nobody(client: BareClient, run_id: str) -> None:
    instance = client.result("run.submit", run_id, name="x")["instanceId"]
    client.result("instance.put", run_id, instanceId="noted", attempt="2")
    assert client.append_log(run_id, "x", instanceId=instance, attempt=1)["seq"] == 2


def test_what_has_expired_reads_as_absent(client: BareClient, expiring_run: ExpiringRun) -> None:
    run_id = expiring_run.run_id
    deadline = time.monotonic() + PATIENCE_S
    while True:
        asked = client.ask("instance.get", run_id)
        if client.reply(asked)["result"]["instance"] is None:
            break
        assert time.monotonic() < deadline, f"the instance did not expire in {PATIENCE_S:.0f} s"
        time.sleep(0.25)
    assert asked.sent.timestamp >= expiring_run.expires_at
    assert client.refusal("sessions.get", run_id)["code"] == "SESSIONS_NOT_FOUND"
    assert client.result("retry.claim", run_id, maxAttempts=5) == {"claimed": False, "attempts": 0}
    assert client.result("retry.put", run_id, params=2)["retryAttempts"] == 0
