"""What stands in a slot of a run, as one number: taken from a command, from the changelog or from a reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.verify.digests import EMPTY, NOTHING, json_digest

RETRY, SESSIONS, INSTANCE = hash("retry"), hash("sessions"), hash("instance")
EXPIRING = frozenset((RETRY, SESSIONS, INSTANCE))
"""The slots that may be empty again, since what is there has expired."""

TRACES = hash("traces")
ATTEMPTS = hash("attempts")
"""How often the run was tried again, beside the retry state."""

_WHOLE_BELOW = 2.0**53


def child_slot(event_key: str) -> int:
    """The slot of a child's result."""
    return hash(("child", event_key))


def call_slot(tool_id: str, input_hash: str) -> int:
    """The slot of a call."""
    return hash(("call", tool_id, input_hash))


def child_content(event_key: str, data: Any) -> int:
    """A child's result; when it was stored is left out, since only the lane knows its time."""
    return json_digest([event_key, data])


def outcome_content(told: Mapping[str, Any]) -> int:
    """A call's outcome: an object with `value` or `error`. Equal numbers are equal, as when it is published again."""
    name = "error" if told.get("error") is not None else "value"
    return json_digest([name, _with_equal_numbers(told.get(name))])


def retry_content(state: Mapping[str, Any]) -> int:
    """A retry state: `params`, `paramsRef`, `paramsBytes`."""
    return json_digest([state.get("params"), state.get("paramsRef"), state.get("paramsBytes")])


def sessions_content(sessions: Any) -> int:
    """A list of encrypted sessions."""
    return json_digest(sessions)


def instance_content(instance_id: Any, attempt: Any, ttl_ms: Any) -> int:
    """An executor instance."""
    return json_digest([instance_id, attempt, ttl_ms])


def content_of(result: Mapping[str, Any]) -> int:
    """What the result in a reply shows of a slot: `EMPTY` for an empty one, `NOTHING` when it is about none."""
    content = NOTHING
    if "state" in result:
        state = result["state"]
        content = EMPTY
        if isinstance(state, dict):
            content = child_content(str(state.get("eventKey")), state.get("data"))
    elif "sessions" in result:
        content = sessions_content(result["sessions"])
    elif "instance" in result:
        instance = result["instance"]
        content = EMPTY
        if isinstance(instance, dict):
            content = instance_content(
                instance.get("instanceId"), instance.get("attempt"), instance.get("ttlMs")
            )
    elif "claimed" in result:
        content = retry_content(result) if "params" in result else EMPTY
    elif result.get("status") == "hit":
        content = outcome_content(result)
    elif result.get("status") in ("claimed", "pending", "timeout"):
        content = EMPTY
    return content


def _with_equal_numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _WHOLE_BELOW:
        return int(value)
    if isinstance(value, list):
        return [_with_equal_numbers(item) for item in value]
    if isinstance(value, dict):
        return {name: _with_equal_numbers(item) for name, item in value.items()}
    return value
