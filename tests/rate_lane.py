"""A small lane of rate buckets, with the commands that tests send most."""

from __future__ import annotations

from typing import Any

from agents.families import FAMILIES
from tests.small_lane import Reply, SmallLane

RATE_FAMILY = next(family for family in FAMILIES if family.name == "rate")

Fields = dict[str, Any]


class RateLane(SmallLane):
    """A lane that serves `rate-commands`; the bucket is `b` unless another is named."""

    def __init__(self) -> None:
        super().__init__(RATE_FAMILY)

    def send(self, type_: str, key: str = "b", **fields: Any) -> Reply:
        """Apply a command and what fires right after it; returns its reply."""
        reply = super().send(type_, key, **fields)
        touched = self.touched
        self.pass_time(0)
        self.touched = touched
        return reply

    def acquire(self, rules: list[Fields], key: str = "b", **fields: Any) -> Fields:
        """The result of `rate.acquire`."""
        return result(self.send("rate.acquire", key, rules=rules, **fields))

    def lease(self, rules: list[Fields], requested: int, key: str = "b", **fields: Any) -> Fields:
        """The result of `rate.lease`."""
        return result(self.send("rate.lease", key, rules=rules, requested=requested, **fields))

    def wait(self, rules: list[Fields], command_id: str, key: str = "b", **fields: Any) -> None:
        """Wait for permits, for 60 s unless said."""
        fields = {"timeoutMs": 60_000, **fields}
        assert self.send("rate.acquire", key, command_id=command_id, rules=rules, **fields) == {"waits": True}

    def peek(self, rules: list[Fields] | None = None, key: str = "b", **fields: Any) -> Fields:
        """The result of `rate.peek`."""
        return result(self.send("rate.peek", key, rules=rules, **fields))

    def take_late(self) -> list[tuple[str, Fields]]:
        """Command id and result of all that was answered late since the last time."""
        late = [(command, result(reply)) for command, reply in self.late]
        self.late.clear()
        return late


def rule(permits: float, window_ms: float, rule_id: str = "r", **fields: Any) -> Fields:
    """A rule as clients send it."""
    return {"ruleId": rule_id, "requestsPerWindow": permits, "windowMs": window_ms, **fields}


def code(reply: Reply) -> str:
    """The error code of a refusal, which must have a message."""
    assert reply["ok"] is False, reply
    assert reply["error"]["message"]
    return str(reply["error"]["code"])


def result(reply: Reply) -> Fields:
    """The result of a command that must have succeeded."""
    assert reply.get("ok") is True, reply
    return dict(reply["result"])
