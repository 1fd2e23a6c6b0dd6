"""Which records may hold database sessions in the clear: those are not copied into dead letters (spec wire 5)."""

from __future__ import annotations

import re
from typing import Any

from schemas.encrypted_sessions import open_session
from schemas.json_codec import InvalidJsonError, decode
from schemas.secret_patterns import looks_secret

_MENTIONED = re.compile(rb"""sessions["']|sessions\s{0,9}[:=]|\bsessions\.|\blaunch\.put\b""", re.IGNORECASE)
_MAX_READ_BYTES = 1024 * 1024
_TYPES = ("sessions.", "launch.put")


def may_hold_open_session(value: bytes | None) -> bool:
    """Whether a record's value has `sessions` that are not all encrypted, or is a command about them with a secret.

    A value that mentions them, in UTF-8 or UTF-16, and cannot be read, or is too large to, counts as one that has.
    `dbSessions` and the like are sessions too: whoever misspells the field has not encrypted less.
    """
    if value is None:
        return False
    mentioned = _MENTIONED.search(value.replace(b"\0", b"")) is not None
    if not mentioned and b"\\u" not in value:
        return False
    if len(value) > _MAX_READ_BYTES:
        return mentioned
    try:
        body = decode(value)
    except InvalidJsonError:
        return mentioned
    if not isinstance(body, dict):
        return mentioned and _has_secret(body)
    for name, sessions in body.items():
        if name.lower().endswith("sessions") and sessions is not None and open_session(sessions) is not None:
            return True
    of_sessions = isinstance(body.get("type"), str) and body["type"].startswith(_TYPES)
    return of_sessions and _has_secret(body)


def _has_secret(value: Any) -> bool:
    """Whether a text in a JSON value, or a name with its value, looks like a secret."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, str) and looks_secret(node):
            return True
        if isinstance(node, dict):
            stack += node.values()
            if any(
                isinstance(inner, str) and looks_secret(f"{name}={inner}") for name, inner in node.items()
            ):
                return True
        elif isinstance(node, list):
            stack += node
    return False
