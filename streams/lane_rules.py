"""What all lanes of a deployment have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.families import Family


@dataclass(frozen=True)
class LaneRules:
    """The same in every lane."""

    families: Mapping[str, Family]
    """Command topic, without prefix -> its family."""
    partitions: int
    """Of every command topic, and of `replies`."""
    max_command_bytes: int
    repeat_limit: int
    """A command id is forgotten when this many newer ones came for its key."""
    repeat_ms: int
    """A command id is forgotten after this time."""
    full_name: Callable[[str], str]
    """Topic name without prefix -> with prefix, for people who read a dead letter's headers."""
