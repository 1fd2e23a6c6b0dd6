"""Reads one partition of `replies`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from schemas.json_codec import InvalidJsonError, decode
from schemas.replies import CORRELATION_ID
from schemas.topics import REPLIES as REPLIES_TOPIC
from streams.ports import HEAL_KEY
from streams.verify.digests import NOTHING, digest, end_digest, reply_digest
from streams.verify.family import VerifiedFamily
from streams.verify.findings import Place
from streams.verify.headers import headers_of
from streams.verify.log_source import Record
from streams.verify.reading import SCHEMA, Reading
from streams.verify.rows import REPLIES


def read_replies(partition: int, reading: Reading, families: Sequence[VerifiedFamily[Any]]) -> None:
    """Read all of it. `families` tell what results are about."""
    write = reading.writer(REPLIES)
    for records in reading.source.read(REPLIES_TOPIC.name, partition):
        for record in records:
            key, value = record.key(), record.value()
            if key == HEAL_KEY and value is None:
                continue
            try:
                body, said = _read(key, value, record)
            except (InvalidJsonError, ValueError, RecursionError) as error:
                reading.malformed(Place(REPLIES_TOPIC.name, partition, record.offset()), error)
                continue
            correlation = digest(key)
            command_id = body["commandId"]
            command = digest(command_id) if command_id is not None else NOTHING
            code, terminal, ts = said.get("code"), said.get("terminal"), said.get("ts")
            write(
                command or correlation,
                command,
                correlation,
                record.offset(),
                record.timestamp()[1],
                _whole(said.get("seq")),
                digest(ts) if isinstance(ts, int | float) else NOTHING,
                end_digest(terminal) if isinstance(terminal, dict) else NOTHING,
                digest(code) if isinstance(code, str) and not body["ok"] else NOTHING,
                _whole(said.get("latestSeq")),
                _content(said, families) if body["ok"] else NOTHING,
                _whole(said.get("fencingNumber")) if body["ok"] else -1,
                reply_digest(command_id, said, ok=body["ok"]),
                partition,
                body["ok"],
            )
        reading.tally.checked(SCHEMA, len(records))
        reading.took(len(records))


def _read(key: bytes | None, value: bytes | None, record: Record) -> tuple[dict[str, Any], dict[str, Any]]:
    """The reply, and its result or error. Raises `ValueError` for what is none."""
    if key is None or value is None:
        raise ValueError("it has no key" if key is None else "it has no value")
    body = decode(value)
    if not isinstance(body, dict) or "commandId" not in body or not isinstance(body.get("ok"), bool):
        raise ValueError("it is no object with `commandId` and `ok`")
    if not isinstance(body["commandId"], str | None):
        raise ValueError("its `commandId` is neither text nor null")
    name = "result" if body["ok"] else "error"
    said = body.get(name)
    if not isinstance(said, dict):
        raise ValueError(f"it has no `{name}`")
    if not body["ok"] and not (isinstance(said.get("code"), str) and isinstance(said.get("message"), str)):
        raise ValueError("its `error` has no `code` and `message`")
    if dict(headers_of(record) or ()).get(CORRELATION_ID) != key:
        raise ValueError(f"its header `{CORRELATION_ID}` is not its key")
    return body, said


def _content(result: Mapping[str, Any], families: Sequence[VerifiedFamily[Any]]) -> int:
    return next((content for family in families if (content := family.content_of(result))), NOTHING)


def _whole(value: Any) -> int:
    """A whole number that fits; else -1."""
    return value if type(value) is int and 0 <= value < 2**62 else -1
