"""The fields of a known command (spec wire 1, "Fields"): wrong optional ones take their defaults."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.commands import Command, FieldError
from schemas.errors import ErrorCode
from schemas.run_commands import RUN_COMMANDS
from tests.property.json_values import NUMBERS, VALUES

CALL = {"toolId": "t", "inputHash": "h"}
REQUIRED: dict[str, dict[str, Any]] = {
    "run.submit": {"name": "n"},
    "run.status": {},
    "run.cancel": {},
    "run.finish": {},
    "events.append": {"event": {"type": "log", "line": "l"}},
    "events.list": {},
    "terminal.set": {"status": "completed"},
    "terminal.get": {},
    "child.terminal.set": {"eventKey": "k"},
    "child.terminal.get": {"eventKey": "k"},
    "child.terminal.await": {"eventKey": "k"},
    "call.claim": {**CALL, "owner": "o"},
    "call.renew": {**CALL, "fencingNumber": 1},
    "call.publish": {**CALL, "fencingNumber": 1, "value": 1},
    "call.await": CALL,
    "call.debug": {},
    "retry.put": {"params": None},
    "retry.claim": {"maxAttempts": 3},
    "launch.put": {"params": None, "sessions": []},
    "instance.put": {"instanceId": "i"},
    "instance.get": {},
    "sessions.put": {"sessions": []},
    "sessions.get": {},
    "trace.add": {"trace": {"source": "coordinator", "phase": "p", "ts": 1, "ms": 2}},
    "trace.list": {},
    "run.signal": {},
    "run.inspect": {},
}

TEXTS = [
    ("run.submit", "pool"),
    ("run.submit", "parentRunId"),
    ("run.submit", "callbackBaseUrl"),
    ("run.submit", "baseUrl"),
    ("run.cancel", "reason"),
    ("events.append", "instanceId"),
    ("terminal.set", "instanceId"),
    ("terminal.set", "error"),
    ("terminal.set", "playName"),
    ("run.signal", "eventKey"),
    ("run.signal", "event_key"),
    ("run.signal", "signalType"),
]
NUMBER_FIELDS = [
    ("run.submit", "maxAttempts"),
    ("events.append", "attempt"),
    ("terminal.set", "attempt"),
    ("terminal.set", "completedAt"),
    ("child.terminal.set", "storedAt"),
    ("retry.put", "paramsBytes"),
    ("launch.put", "paramsBytes"),
]
ANYTHING = [
    ("run.submit", "params"),
    ("run.submit", "paramsRef"),
    ("run.status", "trace"),
    ("terminal.set", "result"),
    ("terminal.set", "totalRows"),
    ("terminal.set", "durationMs"),
    ("child.terminal.set", "data"),
    ("retry.put", "params"),
    ("retry.put", "paramsRef"),
    ("launch.put", "params"),
    ("launch.put", "paramsRef"),
    ("run.signal", "payload"),
    ("call.publish", "value"),
]
CLAMPED = [
    ("run.status", "waitMs", 0, 2000, 0),
    ("events.list", "afterSeq", 0, 2**62, 0),
    ("events.list", "limit", 1, 500, 500),
    ("events.list", "timeoutMs", 0, 30_000, 0),
    ("child.terminal.await", "timeoutMs", 0, 30_000, 0),
    ("retry.put", "ttlMs", 60_000, 3_600_000, 3_600_000),
    ("launch.put", "retryTtlMs", 60_000, 3_600_000, 3_600_000),
    ("launch.put", "dbSessionsTtlMs", 60_000, 1_800_000, 600_000),
    ("sessions.put", "ttlMs", 60_000, 1_800_000, 600_000),
    ("instance.put", "ttlMs", 60_000, 3_600_000, 3_600_000),
    ("call.await", "timeoutMs", 0, 30_000, 0),
    *((type_, "leaseMs", 1000, 3_600_000, 300_000) for type_ in ("call.claim", "call.renew", "call.await")),
]
ELSEWHERE = {
    ("run.submit", "sessions"),
    ("call.await", "claim"),
    ("call.await", "owner"),
    ("call.publish", "error"),
    ("call.publish", "onFailure"),
}
"""Optional fields that have tests of their own."""


def parse(type_: str, **fields: Any) -> Command:
    return RUN_COMMANDS.parse({"type": type_, "commandId": "c", "runId": "r", **REQUIRED[type_], **fields})


def read(type_: str, name: str, value: Any) -> Any:
    """What a command's field holds after `value` was sent in it."""
    return wire(parse(type_, **{name: value}))[name]


def wire(command: Any) -> dict[str, Any]:
    """A command's fields by their wire names, values as they are."""
    return {info.alias: getattr(command, name) for name, info in type(command).model_fields.items()}


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def exactly(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def test_every_command_is_covered() -> None:
    assert set(REQUIRED) == set(RUN_COMMANDS.by_type)
    covered = {(type_, name) for type_, name, *_ in [*TEXTS, *NUMBER_FIELDS, *ANYTHING, *CLAMPED]}
    covered |= {(type_, name) for type_, fields in REQUIRED.items() for name in fields}
    covered |= ELSEWHERE
    for type_ in REQUIRED:
        own = wire(parse(type_)).keys() - {"type", "commandId", "runId"}
        assert own <= {name for of, name in covered if of == type_} | {"instanceId", "attempt"}


@given(st.sampled_from(TEXTS), VALUES)
def test_a_text_of_the_wrong_type_is_null(field: tuple[str, str], value: Any) -> None:
    assert exactly(read(*field, value), value if isinstance(value, str) else None)


@given(st.sampled_from(NUMBER_FIELDS), VALUES | NUMBERS)
def test_a_number_of_the_wrong_type_is_null_and_booleans_are_no_numbers(
    field: tuple[str, str], value: Any
) -> None:
    assert exactly(read(*field, value), value if is_number(value) else None)


@given(st.sampled_from(CLAMPED), VALUES | NUMBERS | st.integers(-5, 40_000) | st.floats(-2, 600))
def test_a_clamped_number_is_whole_and_within_its_range(
    field: tuple[str, str, int, int, int], value: Any
) -> None:
    type_, name, low, high, default = field
    expected = default
    if is_number(value):
        expected = low if value < low else high if value > high else math.floor(value)
    assert exactly(read(type_, name, value), expected)
    assert wire(parse(type_))[name] == default


@given(st.sampled_from(ANYTHING), VALUES)
def test_some_fields_are_any_json(field: tuple[str, str], value: Any) -> None:
    assert exactly(read(*field, value), value)


@given(st.sampled_from(sorted(REQUIRED)), st.dictionaries(st.text(max_size=6), VALUES, max_size=4))
def test_unknown_fields_are_ignored(type_: str, fields: dict[str, Any]) -> None:
    known = wire(parse(type_))
    unknown = {f"x{name}": value for name, value in fields.items()}
    assert wire(parse(type_, **unknown)) == known


EVENT_FIELDS = {
    "log": {"type", "ts", "line"},
    "status": {"type", "ts", "status", "logs"},
    "progress": {"type", "ts", "status", "logs", "activeNodeId", "activeArtifactTableNamespace", "updatedAt"},
}
OPTIONAL = sorted(EVENT_FIELDS["progress"] - {"type", "status"} | {"seq", "runId", "x"})


@given(
    st.sampled_from(sorted(EVENT_FIELDS)), st.fixed_dictionaries({}, optional=dict.fromkeys(OPTIONAL, VALUES))
)
def test_wrong_optional_fields_of_an_event_are_null(kind: str, fields: dict[str, Any]) -> None:
    event: Any = read("events.append", "event", {"type": kind, "line": "l", "status": "s", **fields})
    found = wire(event)
    assert found["type"] == kind
    for name in ("ts", "updatedAt"):
        if name in found:
            value = fields.get(name)
            assert exactly(found[name], value if is_number(value) else None)
    for name in ("activeNodeId", "activeArtifactTableNamespace"):
        if name in found:
            value = fields.get(name)
            assert exactly(found[name], value if isinstance(value, str) else None)
    if "logs" in found:
        value = fields.get("logs")
        assert exactly(found["logs"], value if isinstance(value, list) else None)
    assert found.keys() == EVENT_FIELDS[kind]


@given(VALUES)
def test_a_wrong_event_has_its_own_code(value: Any) -> None:
    assume(not isinstance(value, dict))
    with pytest.raises(FieldError) as raised:
        parse("events.append", event=value)
    assert raised.value.code is ErrorCode.INVALID_RUN_EVENT


@given(VALUES.filter(lambda value: value is not None), VALUES.filter(lambda value: value is not None))
def test_params_and_params_ref_together_are_refused(params: Any, ref: Any) -> None:
    with pytest.raises(FieldError) as raised:
        parse("run.submit", params=params, paramsRef=ref)
    assert raised.value.code is ErrorCode.INVALID_COMMAND
    assert "paramsRef" in raised.value.message


@given(VALUES)
def test_a_publish_tells_a_value_or_an_error(error: Any) -> None:
    told: Any = RUN_COMMANDS.parse(
        {"type": "call.publish", "commandId": "c", "runId": "r", **CALL, "fencingNumber": 1, "error": error}
        | ({"value": None} if error is None else {})
    )
    assert exactly(told.error, error)
    both = {"value": 1, "error": error}
    if error is None:
        assert read("call.publish", "error", None) is None
    else:
        with pytest.raises(FieldError) as raised:
            parse("call.publish", **both)
        assert raised.value.message == "give the value or the error, not both"


@pytest.mark.parametrize("fields", [{}, {"error": None}])
def test_a_publish_tells_something(fields: dict[str, Any]) -> None:
    body = {"type": "call.publish", "commandId": "c", "runId": "r", **CALL, "fencingNumber": 1, **fields}
    with pytest.raises(FieldError) as raised:
        RUN_COMMANDS.parse(body)
    assert raised.value.message == "give the value, or the error"


@given(st.sampled_from(["keep", "release"]) | VALUES)
def test_a_failure_is_kept_unless_it_is_to_be_released(value: Any) -> None:
    assert read("call.publish", "onFailure", value) == ("release" if value == "release" else "keep")


@given(VALUES, VALUES | st.text(min_size=190, max_size=210))
def test_who_waits_to_claim_says_for_whom(claim: Any, owner: Any) -> None:
    is_owner = isinstance(owner, str) and 1 <= len(owner) <= 200
    assert exactly(read("call.await", "owner", owner), owner if is_owner else None)
    if claim is True and not is_owner:
        with pytest.raises(FieldError, match="owner"):
            parse("call.await", claim=claim, owner=owner)
    else:
        assert exactly(wire(parse("call.await", claim=claim, owner=owner))["claim"], claim is True)


_AROUND = "\t\n\v\f\r \u00a0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\ufeff"


@given(st.text(max_size=5), st.text(_AROUND, max_size=3), st.text(_AROUND, max_size=3))
def test_an_event_key_is_trimmed_as_javascript_does(key: str, before: str, after: str) -> None:
    key = f"a{key}b"
    assert read("child.terminal.get", "eventKey", f"{before}{key}{after}") == key
    assert read("child.terminal.get", "eventKey", f"\x1c{key}\x85") == f"\x1c{key}\x85"


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (type_, name)
        for type_ in ("call.claim", "call.renew", "call.publish", "call.await")
        for name in ("toolId", "inputHash")
    ]
    + [(f"child.terminal.{what}", "eventKey") for what in ("set", "get", "await")],
)
def test_names_have_1_to_512_bytes(type_: str, name: str) -> None:
    for right in ("x", "x" * 512, "\u20ac" * 170 + "xx", "\0"):
        assert read(type_, name, right) == right
    for wrong in ("", "x" * 513, "\u20ac" * 171, None, 1, ["x"]):
        with pytest.raises(FieldError) as raised:
            read(type_, name, wrong)
        assert raised.value.message.startswith(f"{name}: ")
        assert raised.value.code is ErrorCode.INVALID_COMMAND


@given(VALUES | NUMBERS)
def test_a_fencing_number_is_a_positive_integer(value: Any) -> None:
    is_right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    for type_ in ("call.renew", "call.publish"):
        if is_right:
            assert read(type_, "fencingNumber", value) == value
        else:
            with pytest.raises(FieldError, match="fencingNumber"):
                read(type_, "fencingNumber", value)


@given(VALUES)
def test_messages_about_fields_quote_no_value(value: Any) -> None:
    secret = ["s3cr3t" * 1000, value]
    for type_, fields in [
        ("run.submit", {"name": secret}),
        ("run.submit", {"sessions": secret}),
        ("sessions.put", {"sessions": secret}),
        ("launch.put", {"sessions": [{secret[0]: secret}]}),
        ("sessions.put", {"sessions": [dict.fromkeys(("name", "algorithm", "keyId"), secret[0])]}),
        ("trace.add", {"trace": {"source": secret[0]}}),
        ("retry.claim", {"maxAttempts": secret}),
        ("run.submit", {"params": secret, "paramsRef": secret}),
        ("terminal.set", {"status": secret[0]}),
        ("events.append", {"event": {"type": secret[0]}}),
        ("events.append", {"event": {"type": secret}}),
        ("events.append", {"event": {"type": "log", "line": secret}}),
        ("events.append", {"event": secret}),
        ("child.terminal.set", {"eventKey": secret[0]}),
        ("call.claim", {"toolId": secret[0]}),
        ("call.claim", {"inputHash": secret}),
        ("call.claim", {"owner": secret[0]}),
        ("call.publish", {"fencingNumber": secret[0]}),
        ("call.publish", {"value": secret, "error": secret}),
    ]:
        with pytest.raises(FieldError) as raised:
            parse(type_, **fields)
        assert 0 < len(raised.value.message) < 200
        assert "s3cr3t" not in raised.value.message


@pytest.mark.parametrize(
    ("type_", "fields", "start"),
    [
        ("run.submit", {"name": None}, "name: "),
        ("run.submit", {"sessions": {}}, "sessions: Sessions have to be encrypted: they have to be a list"),
        (
            "sessions.put",
            {"sessions": [{}]},
            "sessions: Sessions have to be encrypted: number 1 needs a right `name`",
        ),
        ("trace.add", {"trace": {"source": "x"}}, "trace.source: "),
        ("trace.add", {"trace": None}, "trace: Input should be an object"),
        ("retry.claim", {"maxAttempts": None}, "maxAttempts: "),
        ("instance.put", {"instanceId": ""}, "instanceId: "),
        ("terminal.set", {"status": "done"}, "status: Input should be 'completed', 'failed' or 'cancelled'"),
        ("events.append", {"event": {"type": "log"}}, "event.line: "),
        ("events.append", {"event": {"type": "status"}}, "event.status: "),
        ("events.append", {"event": {"type": "progress", "status": 1}}, "event.status: "),
        ("events.append", {"event": {}}, "event.type: "),
        (
            "events.append",
            {"event": {"type": 1}},
            "event.type: Input should be one of 'status', 'log', 'progress'",
        ),
        ("events.append", {"event": []}, "event: "),
        ("events.append", {"event": {"type": "terminal"}}, "event.type: a run is ended with terminal.set"),
    ],
)
def test_messages_name_the_field(type_: str, fields: dict[str, Any], start: str) -> None:
    with pytest.raises(FieldError) as raised:
        parse(type_, **fields)
    assert raised.value.message.startswith(start)
