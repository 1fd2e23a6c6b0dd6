"""What was deleted before somebody claimed it comes back, or the claim waits for ever.

Elsewhere: a cancel or a clean-up overtakes the start, finds nothing, and the start goes ahead later.
"""

from __future__ import annotations

import json
from typing import Any

from agents.run.eviction import EVICTED_AFTER_END_MS, EVICTED_AFTER_FINISH_MS, FORGOTTEN_AFTER_MS
from tests.contract.bare_client import command
from tests.fuzz.fuzzed_lane import FuzzedLane
from tests.fuzz.mutations import Draft
from tests.fuzz.odd_values import KEYS

RUN = KEYS[0]


class Caller:
    """Sends commands about one run, and keeps what became visible."""

    def __init__(self) -> None:
        self.lane = FuzzedLane()
        self.dispatched = 0
        self.events: list[dict[str, Any]] = []
        self._sent = 0

    def ask(self, type_: str, **fields: Any) -> dict[str, Any] | None:
        """The answer to a command; None while it waits."""
        self._sent += 1
        address = (("reply-partition", b"0"), ("correlation-id", b"%d" % self._sent))
        value = command(type_, RUN, f"c{self._sent}", **fields)
        fed = self.lane.feed(Draft("run-commands", RUN.encode(), value, address))
        self.lane.commit()
        answer = None
        for output in (*fed.timer_outputs, *fed.outputs):
            if output.topic == "run-dispatch":
                self.dispatched += 1
            elif output.topic == "run-events":
                self.events.append(json.loads(output.value or b""))
            elif output.key == b"%d" % self._sent:
                answer = json.loads(output.value or b"")
        return answer

    def refusal(self, type_: str, **fields: Any) -> str:
        """The code of the refusal of a command."""
        answer = self.ask(type_, **fields)
        assert answer is not None
        assert not answer["ok"]
        return str(answer["error"]["code"])

    def pass_time(self, ms: int) -> None:
        """Let time pass; what is due happens at the next command."""
        self.lane.now += ms


def test_a_submit_that_its_cancel_overtook_never_starts() -> None:
    caller = Caller()
    caller.ask("run.cancel")
    for later in (0, EVICTED_AFTER_END_MS, FORGOTTEN_AFTER_MS - 1):
        caller.pass_time(later)
        assert caller.refusal("run.submit", name="work") == "RUN_ENDED"
    assert caller.dispatched == 0
    assert [event["type"] for event in caller.events] == ["terminal"]


def test_an_end_that_overtook_the_submit_stands() -> None:
    caller = Caller()
    caller.ask("terminal.set", status="completed", result=7)
    answer = caller.ask("run.submit", name="work")
    assert answer is not None
    assert (answer["error"]["code"], answer["error"]["terminal"]["result"]) == ("RUN_ENDED", 7)
    assert caller.dispatched == 0


def test_a_clean_up_that_comes_before_the_run_cleans_nothing_later() -> None:
    caller = Caller()
    assert caller.refusal("run.finish") == "RUN_NOT_FOUND"
    caller.ask("run.submit", name="work")
    assert caller.refusal("run.finish") == "RUN_NOT_ENDED"
    caller.pass_time(10 * EVICTED_AFTER_FINISH_MS)
    answer = caller.ask("run.status")
    assert answer is not None
    assert answer["result"]["status"] == "running"
    assert caller.dispatched == 1


def test_a_wait_for_a_run_that_does_not_come_leaves_nothing_for_the_run_that_does() -> None:
    caller = Caller()
    assert caller.ask("events.list", timeoutMs=100) is None
    caller.pass_time(200)
    assert caller.refusal("run.status") == "RUN_NOT_FOUND"
    state = caller.lane.state()
    assert "run.head" not in state
    assert "run.wait" not in state
    assert caller.ask("events.list", timeoutMs=100) is None
    answer = caller.ask("run.submit", name="work")
    assert answer is not None
    assert answer["result"]["seq"] == 1
    caller.pass_time(200)
    caller.ask("run.status")
    assert "run.wait" not in caller.lane.state()


def test_what_was_planned_for_a_forgotten_run_does_not_befall_the_next_of_its_name() -> None:
    caller = Caller()
    caller.ask("run.cancel")
    caller.pass_time(EVICTED_AFTER_END_MS)
    caller.ask("run.status")
    caller.pass_time(FORGOTTEN_AFTER_MS)
    assert caller.ask("run.submit", name="work") is not None
    assert caller.dispatched == 1
    for _ in range(10):
        caller.pass_time(EVICTED_AFTER_END_MS)
        answer = caller.ask("run.status")
        assert answer is not None
        assert answer["result"]["status"] == "running"
    assert [event["seq"] for event in caller.events] == [1, 1]
