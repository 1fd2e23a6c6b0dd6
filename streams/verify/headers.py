"""Headers of records as the native client gives them."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.dead_letters import HEADER_PREFIX
from schemas.envelope import read_reply_address
from schemas.replies import ReplyAddress
from streams.verify.log_source import Record

Headers = tuple[tuple[str, bytes | None], ...]


def headers_of(record: Record) -> Headers | None:
    """The headers of a record; None when a name is not UTF-8, which the native client does not read."""
    try:
        return tuple(record.headers() or ())
    except UnicodeDecodeError:
        return None


def own_headers(headers: Iterable[tuple[str, bytes | None]]) -> Headers:
    """The headers that are not runlane's."""
    return tuple(header for header in headers if not header[0].startswith(HEADER_PREFIX))


def reply_address(headers: Headers, partitions: int) -> ReplyAddress | None:
    """The reply address in the headers; None when there is none that can be used."""
    try:
        return read_reply_address(headers, partitions)
    except ValueError:
        return None
