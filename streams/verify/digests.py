"""64-bit digests by which records are compared and brought together. They hold within one process only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from schemas.terminals import TerminalState

digest = hash
"""The digest of bytes, a text or a number: equal values have equal digests, 1 and 1.0 too.

Python hashes bytes and texts by a keyed SipHash: that any two of 10 million values collide has a chance of 3 in
a million.
"""

NOTHING = 0
"""Stands for what is not there."""


def json_digest(value: Any) -> int:
    """The digest of a decoded JSON value; the order of names does not count."""
    return hash(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


EMPTY = hash("empty")
"""Stands for the content of a place where nothing is stored."""


def reply_digest(command_id: str | None, body: Any, *, ok: bool) -> int:
    """The digest of all that a reply says; `body`: its result or error."""
    return json_digest({"commandId": command_id, "ok": ok, "result" if ok else "error": body})


TIMER = hash("timer:")
"""Stands for the id of a timer, instead of a command's, as the maker of an output."""


def maker(command_id: str) -> int:
    """The digest of the `commandId` of an output; `TIMER` for all timers."""
    return TIMER if command_id.startswith("timer:") else hash(command_id)


_END_FIELDS = tuple(field.alias or name for name, field in TerminalState.model_fields.items())


def end_digest(state: Mapping[str, Any]) -> int:
    """The digest of a terminal state, given by its JSON fields."""
    return json_digest({name: state.get(name) for name in _END_FIELDS})
