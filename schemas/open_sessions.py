"""Which records may hold database sessions in the clear: those are not copied into dead letters (spec wire 5)."""

from __future__ import annotations

import re
from typing import Any

from schemas.encrypted_sessions import open_session
from schemas.json_codec import InvalidJsonError, decode
from schemas.secret_patterns import looks_secret

_MENTIONED = re.compile(rb"""["']sessions["']|\bsessions\.|\blaunch\.put\b""")
_MAX_READ_BYTES = 1024 * 1024
_TYPES = ("sessions.", "launch.put")


def may_hold_open_session(value: bytes | None) -> bool:
    """Whether a record's value has `sessions` that are not all encrypted, or is a command about them with a secret.

    A value that mentions them and cannot be read, or is too large to, counts as one that has.
    """
    if value is None or _MENTIONED.search(value) is None:
        return False
    if len(value) > _MAX_READ_BYTES:
        return True
    try:
        body = decode(value)
    except InvalidJsonError:
        return True
    if not isinstance(body, dict):
        return _has_secret(body)
    if body.get("sessions") is not None and open_session(body["sessions"]) is not None:
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
