"""What a lane may write because of one record: checked against the exported JSON Schemas and the wire contract."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from schemas import dead_letters
from schemas.export import exported
from schemas.open_sessions import may_hold_open_session
from schemas.replies import CORRELATION_ID
from schemas.topics import DEAD_LETTERS, REPLIES, TOPICS
from streams.batch import MAX_OUTPUT_BYTES, MAX_REPLY_BYTES
from streams.partitioner import partition_for
from streams.ports import OutRecord
from tests.fuzz.fuzzed_lane import Fed
from tests.fuzz.odd_values import PARTITION, PARTITIONS

_SCHEMAS: dict[str, Any] = {name: json.loads(content) for name, content in exported().items()}
_RESULTS = tuple(name for name in _SCHEMAS if name.startswith("result."))


def check_outputs(fed: Fed) -> None:
    """Everything that a record and the timers before it made is as the contract says."""
    letters = [output for output in fed.outputs if output.topic == DEAD_LETTERS.name]
    assert len(letters) == (1 if fed.is_dead else 0)
    for letter in letters:
        _check_dead_letter(fed, letter)
    if fed.outcome == "forwarded":
        (copy,) = fed.outputs
        record = fed.record
        assert (copy.key, copy.value, copy.headers) == (record.key, record.value, list(record.headers))
        assert (copy.topic, copy.partition) == (record.topic, partition_for(record.key or b"", PARTITIONS))
        return
    if fed.is_dead or fed.outcome in ("refused", "repeated", "skipped"):
        allowed = {DEAD_LETTERS.name, REPLIES.name}
        assert {output.topic for output in fed.outputs} <= allowed
        assert sum(output.topic == REPLIES.name for output in fed.outputs) <= 1
    for output in (*fed.timer_outputs, *fed.outputs):
        if output.topic != DEAD_LETTERS.name:
            check_record(output)


def check_record(output: OutRecord) -> None:
    """A record for an output topic has the value that the topic's schema describes, and lies where it should."""
    spec = TOPICS[output.topic]
    assert output.value is not None
    assert output.key is not None
    size = len(output.key) + len(output.value)
    assert size <= (MAX_REPLY_BYTES if output.topic == REPLIES.name else MAX_OUTPUT_BYTES)
    value = json.loads(output.value)
    validate(value, f"topic.{output.topic}.json")
    if output.topic == REPLIES.name:
        assert output.headers == [(CORRELATION_ID, output.key)]
        assert 0 <= output.partition < PARTITIONS
        if value["ok"]:
            validate(value["result"], *_RESULTS)
        return
    if spec.exclusive:
        assert output.partition == PARTITION
    else:
        assert output.partition == partition_for(output.key, PARTITIONS)


def _check_dead_letter(fed: Fed, letter: OutRecord) -> None:
    record = fed.record
    withheld = may_hold_open_session(record.value)
    value = None if withheld else record.value
    assert (letter.partition, letter.key, letter.value) == (record.partition, record.key, value)
    headers = list(letter.headers or ())
    own = len(record.headers)
    assert headers[:own] == list(record.headers)
    reason = dict(headers[own:])
    assert (dead_letters.VALUE_WITHHELD in reason) is withheld
    assert reason[dead_letters.CODE] == fed.outcome.encode()
    assert reason[dead_letters.OFFSET] == b"%d" % record.offset
    message = reason[dead_letters.MESSAGE]
    assert message is not None
    assert 0 < len(message) <= dead_letters.MAX_MESSAGE_BYTES
    assert message.decode().isprintable()


def check_stored(value: bytes) -> None:
    """A stored record is one that the changelog's schema describes."""
    validate(json.loads(value), "topic.state-changelog.json")


def validate(value: Any, *schemas: str) -> None:
    """One of the schemas describes the value; of values of one shape only the first is checked, for it is slow."""
    seen, shape = _SEEN.setdefault(schemas, set()), _shape(value)
    if shape not in seen:
        if not any(_validator(schema).is_valid(value) for schema in schemas):
            _validator(schemas[0]).validate(value)
        seen.add(shape)


_SEEN: dict[tuple[str, ...], set[Any]] = {}


@cache
def _validator(schema: str) -> Draft202012Validator:
    return Draft202012Validator(_SCHEMAS[schema])


def _shape(value: Any) -> Any:
    """What a schema can tell apart: types, names, and texts and numbers that stand in one."""
    if isinstance(value, dict):
        return frozenset([(name, _shape(inner)) for name, inner in value.items()])
    if isinstance(value, list):
        return "list", frozenset(map(_shape, value))
    if isinstance(value, bool) or value is None or value in _CONSTANTS:
        return type(value), value
    return type(value)


def _constants(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield from schema.get("enum", [])
        if "const" in schema:
            yield schema["const"]
        for inner in schema.values():
            yield from _constants(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _constants(inner)


_CONSTANTS = set(_constants(list(_SCHEMAS.values())))
