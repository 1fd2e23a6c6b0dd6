"""The records that a lane itself makes: replies, dead letters, forwarded commands."""

from __future__ import annotations

import re

from agents.machine import Answer
from schemas import dead_letters
from schemas.envelope import Headers
from schemas.errors import ErrorCode
from schemas.json_codec import encode
from schemas.open_sessions import may_hold_open_session
from schemas.replies import CORRELATION_ID, ReplyAddress
from schemas.topics import DEAD_LETTERS, REPLIES
from streams.ports import CommandRecord, OutRecord

_FRAME = re.compile(r'^  File ".*", line \d+.*$', re.MULTILINE)
"""The lines of a traceback that say where it was, without source and without the exception's text."""


def reply_record(to: ReplyAddress, command_id: str | None, answer: Answer) -> OutRecord:
    """The reply to one command (DESIGN 2)."""
    body = {"commandId": command_id, "ok": answer.ok, "result" if answer.ok else "error": answer.body}
    correlation_id = to.correlation_id
    return OutRecord(
        REPLIES.name, to.partition, correlation_id, encode(body), [(CORRELATION_ID, correlation_id)]
    )


def forwarded_record(record: CommandRecord, partition: int) -> OutRecord:
    """A command that came in the wrong partition, unchanged, for the right one (wire 1, "Routing")."""
    return OutRecord(record.topic, partition, record.key, record.value, list(record.headers))


def dead_letter_record(
    record: CommandRecord, topic: str, code: ErrorCode, message: str, traceback: str | None = None
) -> OutRecord:
    """The dead letter of a record: its own headers first, then ours (wire 5).

    What is too large, or may hold a database session in the clear, is left out.

    `topic` is the full name of the topic that the record was read from.
    """
    key, original = record.key, list(record.headers)
    left_out: list[tuple[str, bytes | None]] = []
    key_bytes, headers_bytes = len(key or b""), headers_size(original)
    if key_bytes + headers_bytes > dead_letters.MAX_KEY_AND_HEADERS_BYTES and original:
        left_out.append((dead_letters.HEADERS_BYTES, b"%d" % headers_bytes))
        original = []
    if key_bytes > dead_letters.MAX_KEY_AND_HEADERS_BYTES:
        left_out.append((dead_letters.KEY_BYTES, b"%d" % key_bytes))
        key = None
    headers = [
        *original,
        (dead_letters.CODE, code.value.encode()),
        (dead_letters.MESSAGE, _cut(message, dead_letters.MAX_MESSAGE_BYTES)),
        (dead_letters.TOPIC, topic.encode()),
        (dead_letters.PARTITION, b"%d" % record.partition),
        (dead_letters.OFFSET, b"%d" % record.offset),
        (dead_letters.TIMESTAMP, b"%d" % record.timestamp),
        *left_out,
    ]
    value = record.value
    too_large = value is not None and len(value) > dead_letters.MAX_VALUE_BYTES
    withheld = not too_large and may_hold_open_session(value)
    if traceback is not None:
        shown = "\n".join(_FRAME.findall(traceback)) if withheld else traceback
        headers.append((dead_letters.TRACEBACK, _cut(shown, dead_letters.MAX_TRACEBACK_BYTES, tail=True)))
    if value is not None and (too_large or withheld):
        headers.append((dead_letters.VALUE_BYTES, b"%d" % len(value)))
        value = None
    if withheld:
        headers.append((dead_letters.VALUE_WITHHELD, b"sessions"))
    return OutRecord(DEAD_LETTERS.name, record.partition, key, value, headers)


def headers_size(headers: Headers) -> int:
    """Bytes of the names and values of headers."""
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def _cut(text: str, limit: int, *, tail: bool = False) -> bytes:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data
    kept = data[-limit:] if tail else data[:limit]
    return kept.decode("utf-8", "ignore").encode()
