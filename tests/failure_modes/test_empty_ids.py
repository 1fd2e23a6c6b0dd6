"""An empty text is taken for an id, and strangers share what is stored under it.

Elsewhere: an id that was never set is "", and everybody's "" is one entity, one lock or one seen message.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.failure_modes.caller import Caller
from tests.fuzz.fuzzed_lane import FuzzedLane
from tests.fuzz.mutations import Draft
from tests.fuzz.odd_values import KEYS

KEY = KEYS[0]
ADDRESS = (("reply-partition", b"0"), ("correlation-id", b"c"))
RIGHT = {"type": "run.cancel", "commandId": "c", "runId": KEY}


@pytest.mark.parametrize(
    ("key", "changes", "headers", "code"),
    [
        (b"", {"runId": ""}, ADDRESS, "INVALID_KEY"),
        (None, {"runId": ""}, ADDRESS, "INVALID_KEY"),
        (KEY.encode(), {"runId": ""}, ADDRESS, "KEY_MISMATCH"),
        (b"", {}, ADDRESS, "INVALID_KEY"),
        (KEY.encode(), {"commandId": ""}, ADDRESS, "INVALID_COMMAND_ID"),
        (KEY.encode(), {"type": ""}, ADDRESS, "UNKNOWN_COMMAND"),
        (KEY.encode(), {}, (("reply-partition", b"0"), ("correlation-id", b"")), "INVALID_REPLY_ADDRESS"),
        (KEY.encode(), {}, (("reply-partition", b""), ("correlation-id", b"c")), "INVALID_REPLY_ADDRESS"),
        (KEY.encode(), {}, (("correlation-id", b""),), "INVALID_REPLY_ADDRESS"),
    ],
)
def test_an_empty_id_names_nothing(
    key: bytes | None, changes: dict[str, Any], headers: tuple[tuple[str, bytes], ...], code: str
) -> None:
    lane = FuzzedLane()
    value = json.dumps({**RIGHT, **changes}).encode()
    for _ in range(2):
        # The second is refused for what it is, not for what the first was.
        fed = lane.feed(Draft("run-commands", key, value, headers))
        assert fed.outcome == code
    lane.commit()
    assert set(lane.state()) == {"lane.progress"}


CALL = {"toolId": "t", "inputHash": "h", "owner": "o"}


@pytest.mark.parametrize(
    ("type_", "fields"),
    [
        *(("call.claim", {**CALL, name: ""}) for name in CALL),
        ("call.await", {**CALL, "claim": True, "owner": "", "timeoutMs": 1000}),
        ("call.publish", {**CALL, "toolId": "", "fencingNumber": 1, "value": 1}),
        ("call.publish", {**CALL, "fencingNumber": 0, "value": 1}),
        ("child.terminal.set", {"eventKey": "", "data": 1}),
        ("child.terminal.set", {"eventKey": " \n", "data": 1}),
        ("child.terminal.await", {"eventKey": "", "timeoutMs": 1000}),
        ("instance.put", {"instanceId": ""}),
    ],
    ids=str,
)
def test_two_that_give_an_empty_name_do_not_meet_under_it(type_: str, fields: dict[str, Any]) -> None:
    caller = Caller()
    for _ in range(2):
        assert caller.refusal(type_, **fields) == "INVALID_COMMAND"
    assert not any(table.startswith("run.") for table in caller.lane.state())


def test_a_signal_without_a_key_is_not_the_result_of_the_empty_key() -> None:
    caller = Caller()
    assert caller.result("run.signal", eventKey="", payload=1) == {
        "signalType": "integration_event",
        "stored": False,
    }
    named = caller.result("child.terminal.get", eventKey="integration_event")
    assert named["state"]["data"] == 1


def test_a_blank_or_a_nul_is_an_id_like_any_other() -> None:
    lane = FuzzedLane()
    ids = [" ", "\0", "\0\0", "\u200b", "\n"]
    for number, command_id in enumerate(ids):
        body = {
            **RIGHT,
            "type": "events.append",
            "commandId": command_id,
            "event": {"type": "log", "line": "x"},
        }
        fed = lane.feed(Draft("run-commands", KEY.encode(), json.dumps(body).encode(), ADDRESS))
        assert fed.outcome == "applied"
        assert json.loads(fed.outputs[0].value or b"")["seq"] == number + 1
    lane.commit()
    remembered = {key[2] for key in lane.state()["lane.answer"]}
    assert remembered == set(ids)
