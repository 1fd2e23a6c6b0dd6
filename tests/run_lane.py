"""A small lane of runs, with the commands that tests send most."""

from __future__ import annotations

from typing import Any

from agents.families import FAMILIES
from tests.small_lane import Reply, SmallLane

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000

RUN_FAMILY = next(family for family in FAMILIES if family.name == "run")


class RunLane(SmallLane):
    """A lane that serves `run-commands`; the run is `r` unless another is named."""

    def __init__(self) -> None:
        super().__init__(RUN_FAMILY)

    def log(self, line: str = "x", run: str = "r", **fields: Any) -> Reply:
        """Append a log event."""
        return self.send("events.append", run, event={"type": "log", "line": line}, **fields)

    def list(self, run: str = "r", **fields: Any) -> dict[str, Any]:
        """The result of `events.list`."""
        return result(self.send("events.list", run, **fields))

    def end(self, **fields: Any) -> dict[str, Any]:
        """End the run, as completed unless said; returns the terminal state."""
        end = {"status": "completed", **fields}
        return dict(result(self.send("terminal.set", **end))["terminal"])

    def evict(self) -> None:
        """Finish the run and let the time to its eviction pass."""
        result(self.send("run.finish"))
        self.pass_time(MINUTE)


def code(reply: Reply) -> str:
    """The error code of a refusal, which must have a message."""
    assert reply["ok"] is False, reply
    assert reply["error"]["message"]
    return str(reply["error"]["code"])


def result(reply: Reply) -> dict[str, Any]:
    """The result of a command that must have succeeded."""
    assert reply["ok"] is True, reply
    return dict(reply["result"])
