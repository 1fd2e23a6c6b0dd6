"""Somebody who sends commands about one run to a lane in memory."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.bare_client import command
from tests.fuzz.fuzzed_lane import FuzzedLane
from tests.fuzz.mutations import Draft
from tests.fuzz.odd_values import KEYS

RUN = KEYS[0]


class Caller:
    """Sends commands about one run, and keeps what became visible."""

    def __init__(self, *, commits: bool = True) -> None:
        """`commits`: each command is committed before the next one is taken."""
        self.lane = FuzzedLane()
        self.commits = commits
        self.dispatched = 0
        self.events: list[dict[str, Any]] = []
        self.answers: list[list[dict[str, Any]]] = []
        """What was answered to each command, in the order in which they were sent."""

    def ask(self, type_: str, **fields: Any) -> dict[str, Any] | None:
        """The answer to a command; None while it waits."""
        number = len(self.answers)
        self.answers.append([])
        address = (("reply-partition", b"0"), ("correlation-id", b"%d" % number))
        value = command(type_, RUN, f"c{number}", **fields)
        fed = self.lane.feed(Draft("run-commands", RUN.encode(), value, address))
        if self.commits:
            self.lane.commit()
        for output in (*fed.timer_outputs, *fed.outputs):
            if output.topic == "run-dispatch":
                self.dispatched += 1
            elif output.topic == "run-events":
                self.events.append(json.loads(output.value or b""))
            elif output.topic == "replies":
                self.answers[int(output.key or b"")].append(json.loads(output.value or b""))
        return self.answers[number][-1] if self.answers[number] else None

    def result(self, type_: str, **fields: Any) -> dict[str, Any]:
        """The result of a command that is accepted."""
        answer = self.ask(type_, **fields)
        assert answer is not None
        assert answer["ok"], answer
        result: dict[str, Any] = answer["result"]
        return result

    def refusal(self, type_: str, **fields: Any) -> str:
        """The code of the refusal of a command."""
        answer = self.ask(type_, **fields)
        assert answer is not None
        assert not answer["ok"]
        return str(answer["error"]["code"])

    def pass_time(self, ms: int) -> None:
        """Let time pass; what is due happens at the next command."""
        self.lane.now += ms
