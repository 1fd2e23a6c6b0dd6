"""The state that a changelog stands for, read by its layout alone. Imports nothing of ours.

A key is the table's name and the parts of the key: text ends with its only NUL (inside, byte 0 is 1 1 and byte 1
is 1 2), a number has eight bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.crash.history import Row


@dataclass
class LaneState:
    """The folded changelog of one partition."""

    heads: dict[bytes, dict[str, Any]] = field(default_factory=dict)
    """By run id."""
    events: dict[bytes, dict[int, bytes]] = field(default_factory=dict)
    """By run id and `seq`: the event's bytes."""
    terminals: dict[bytes, bytes] = field(default_factory=dict)
    waits: int = 0
    progress: dict[str, Any] = field(default_factory=dict)


def fold(rows: Iterable[Row]) -> LaneState:
    """The state after all changes of one partition, in their order."""
    latest: dict[bytes, bytes] = {}
    for row in rows:
        if row.key is None:
            continue
        if row.value is None:
            latest.pop(row.key, None)
        else:
            latest[row.key] = row.value
    state = LaneState()
    for key, value in latest.items():
        name, rest = text_part(key)
        if name == b"run.head":
            state.heads[text_part(rest)[0]] = json.loads(value)
        elif name == b"run.event":
            run_id, number = text_part(rest)
            state.events.setdefault(run_id, {})[int.from_bytes(number, "big")] = value
        elif name == b"run.terminal":
            state.terminals[text_part(rest)[0]] = value
        elif name == b"run.wait":
            state.waits += 1
        elif name == b"lane.progress":
            state.progress = json.loads(value)
    return state


def text_part(data: bytes) -> tuple[bytes, bytes]:
    """The text that a key's bytes begin with, and what follows it."""
    text, _, rest = data.partition(b"\0")
    return text.replace(b"\1\1", b"\0").replace(b"\1\2", b"\1"), rest
