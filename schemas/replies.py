"""Replies: the answer to one command, on the partition that its headers name (DESIGN 2, wire 1 and 3)."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

CORRELATION_ID = "correlation-id"
REPLY_PARTITION = "reply-partition"


class ReplyAddress(NamedTuple):
    """Where an answer goes: a partition of the topic `replies`, and the bytes that the client knows it by."""

    partition: int
    correlation_id: bytes


class ReplyError(BaseModel):
    """Why a command was refused; some codes add fields, such as `terminal`."""

    model_config = ConfigDict(extra="allow", frozen=True)

    code: str
    message: str


class Reply(BaseModel):
    """`{"commandId", "ok": true, "result"}` or `{"commandId", "ok": false, "error"}`.

    `command_id` is null when the command's id could not be read.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    command_id: str | None
    """Id of the command that is answered."""
    ok: bool
    """Whether the command was accepted."""
    result: dict[str, Any] | None = None
    """What the command answers; only there when `ok` is true."""
    error: ReplyError | None = None
    """`code`, `message` and what belongs to the code; only there when `ok` is false."""
