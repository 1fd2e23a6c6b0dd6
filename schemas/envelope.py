"""The envelope of a command: what is checked before anything else looks at it (spec wire 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemas.commands import CommandSet
from schemas.errors import ErrorCode
from schemas.json_codec import InvalidJsonError, decode
from schemas.replies import CORRELATION_ID, REPLY_PARTITION, ReplyAddress
from schemas.values import Value

MAX_KEY_BYTES = 512
MAX_COMMAND_ID_CHARACTERS = 200
MAX_CORRELATION_ID_BYTES = 200

Headers = Sequence[tuple[str, bytes | None]]


class Envelope(Value, frozen=True):
    """A command whose envelope is right; its fields are not checked yet."""

    type: str
    command_id: str
    key: str
    body: dict[str, Any]
    reply_to: ReplyAddress | None

    def __repr__(self) -> str:
        # The body is not checked yet: it may hold secrets that no message and no log may show.
        return f"Envelope({self.type} {self.command_id!r} of {self.key!r})"


class EnvelopeError(Exception):
    """A wrong envelope: the record is dead-lettered, and answered when a reply address could be read."""

    def __init__(
        self, code: ErrorCode, message: str, command_id: str | None, reply_to: ReplyAddress | None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.command_id = command_id
        self.reply_to = reply_to


class _WrongReplyAddressError(ValueError):
    pass


def read_envelope(
    commands: CommandSet,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    reply_partitions: int,
    max_bytes: int,
) -> Envelope:
    """The envelope of one record. Raises `EnvelopeError`.

    Checked in this order: size, key, JSON, `type`, `commandId`, the entity's id against the key, reply
    address.
    """
    reply_to, wrong_address = _reply_address(headers, reply_partitions) if headers else (None, "")
    if value is not None and len(value) > max_bytes:
        message = f"the value has {len(value)} bytes; at most {max_bytes} are accepted"
        raise EnvelopeError(ErrorCode.COMMAND_TOO_LARGE, message, None, reply_to)
    if not key or len(key) > MAX_KEY_BYTES:
        size = "is missing" if key is None else f"has {len(key)} bytes"
        message = f"the key {size}; it must have 1..{MAX_KEY_BYTES} bytes"
        raise EnvelopeError(ErrorCode.INVALID_KEY, message, _readable_id(value), reply_to)
    try:
        entity = key.decode()
    except UnicodeDecodeError:
        message = "the key is not UTF-8"
        raise EnvelopeError(ErrorCode.INVALID_KEY, message, _readable_id(value), reply_to) from None
    if value is None:
        message = "the record has no value; a JSON object is needed"
        raise EnvelopeError(ErrorCode.INVALID_JSON, message, None, reply_to)
    try:
        body = decode(value)
    except InvalidJsonError as error:
        raise EnvelopeError(ErrorCode.INVALID_JSON, str(error), None, reply_to) from None
    if type(body) is not dict:
        message = "the value is JSON but not an object"
        raise EnvelopeError(ErrorCode.INVALID_JSON, message, None, reply_to)
    command_id = _id_in(body)
    type_ = body.get("type")
    if type(type_) is not str or type_ not in commands.by_type:
        known = ", ".join(sorted(commands.by_type))
        message = f"`type` names no command of {commands.topic}; these exist: {known}"
        raise EnvelopeError(ErrorCode.UNKNOWN_COMMAND, message, command_id, reply_to)
    if command_id is None:
        message = f"`commandId` must be a string of 1..{MAX_COMMAND_ID_CHARACTERS} characters"
        raise EnvelopeError(ErrorCode.INVALID_COMMAND_ID, message, None, reply_to)
    if body.get(commands.id_field) != entity:
        message = f"`{commands.id_field}` must be there and equal the record's key"
        raise EnvelopeError(ErrorCode.KEY_MISMATCH, message, command_id, reply_to)
    if wrong_address:
        raise EnvelopeError(ErrorCode.INVALID_REPLY_ADDRESS, wrong_address, command_id, reply_to)
    return Envelope(type_, command_id, entity, body, reply_to)


def _reply_address(headers: Headers, partitions: int) -> tuple[ReplyAddress | None, str]:
    """The reply address, if any, and what is wrong with it, if anything is."""
    try:
        return read_reply_address(headers, partitions), ""
    except _WrongReplyAddressError as error:
        return None, str(error)


def _id_in(body: dict[str, Any]) -> str | None:
    given = body.get("commandId")
    return given if type(given) is str and 1 <= len(given) <= MAX_COMMAND_ID_CHARACTERS else None


def _readable_id(value: bytes | None) -> str | None:
    """The id of a command whose key is wrong, as far as the value can be read."""
    try:
        body = decode(value or b"")
    except InvalidJsonError:
        return None
    return _id_in(body) if type(body) is dict else None


def read_reply_address(headers: Headers, partitions: int) -> ReplyAddress | None:
    """The reply address in a record's headers, or None when there is none; the last header of a name counts.

    Raises `ValueError` for half an address, or a partition that the replies topic (with `partitions`) lacks.
    """
    partition = correlation_id = None
    has_partition = has_correlation_id = False
    for name, value in headers:
        if name == REPLY_PARTITION:
            has_partition, partition = True, value
        elif name == CORRELATION_ID:
            has_correlation_id, correlation_id = True, value
    if not has_partition and not has_correlation_id:
        return None
    if has_partition is not has_correlation_id:
        raise _WrongReplyAddressError(f"send both headers, {REPLY_PARTITION} and {CORRELATION_ID}, or none")
    if not correlation_id or len(correlation_id) > MAX_CORRELATION_ID_BYTES:
        raise _WrongReplyAddressError(f"{CORRELATION_ID} must have 1..{MAX_CORRELATION_ID_BYTES} bytes")
    if partition is None or not 1 <= len(partition) <= 5 or not partition.isdigit():
        raise _WrongReplyAddressError(f"{REPLY_PARTITION} must be 1 to 5 ASCII digits")
    number = int(partition)
    if number >= partitions:
        raise _WrongReplyAddressError(f"{REPLY_PARTITION} must be below {partitions}")
    return ReplyAddress(number, correlation_id)
