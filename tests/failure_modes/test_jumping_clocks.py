"""A clock jumps, and limits give too much, or nothing for ever.

Elsewhere: windows are made anew when time goes back, a negative time span refills a bucket, and a lease that was given
in the future never ends. Real batches here, under a clock that the test turns; `runlane verify` looks at the topics.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from schemas.topics import REPLIES
from tests.verification.breaking import report_on
from tests.verification.made_deployment import DAY, HOUR, MINUTE, SECOND, Deployment

BUCKET = "b"
YEAR = 366 * DAY


class Buckets(Deployment):
    """A deployment that is asked one question after the other."""

    def result(self, type_: str, **fields: Any) -> dict[str, Any]:
        """The result of a command, applied now."""
        command_id = self.send(type_, BUCKET, asks=True, **fields)
        self.settle()
        (result,) = self.results(command_id)
        return result

    def results(self, command_id: str) -> list[dict[str, Any]]:
        """The results in all replies to a command so far."""
        bodies = [
            json.loads(record.own_value or b"")
            for (topic, _), log in self.topics.logs.items()
            if topic == REPLIES.name
            for record in log
        ]
        return [body["result"] for body in bodies if body["commandId"] == command_id]

    def turn(self, ms: int) -> None:
        """The clock jumps; timers that are due fire."""
        self.now += ms
        self.pass_time(0)


@pytest.mark.parametrize("kind", ["window", "sliding", "bucket"])
@pytest.mark.parametrize("window_ms", [1, 1000, HOUR, YEAR])
@pytest.mark.parametrize("permits", [1, 10**9])
def test_a_clock_that_goes_back_gives_nothing_and_one_that_leaps_gives_one_window(
    kind: str, window_ms: int, permits: int
) -> None:
    made = Buckets()
    rules = [{"ruleId": "r", "kind": kind, "windowMs": window_ms, "requestsPerWindow": permits}]

    def take() -> int:
        return int(made.result("rate.acquire", rules=rules, requested=10**12)["granted"])

    assert take() == permits
    for back in (-1, -window_ms, -DAY, -YEAR):
        made.turn(back)
        assert take() == 0
    # The lane's time stands still until the clock has caught up.
    made.turn(1 + window_ms + DAY + YEAR)
    assert take() == 0
    made.turn(3 * window_ms)
    assert take() == permits
    assert take() == 0
    made.turn(10 * YEAR)
    assert take() == permits
    assert take() == 0
    assert not report_on(made, made.settle()).violations


def test_leases_end_and_waits_are_answered_whatever_the_clock_does() -> None:
    made = Buckets()
    rules = [{"ruleId": "r", "windowMs": 0, "requestsPerWindow": 10**9, "maxConcurrency": 1}]
    ahead = made.result("rate.acquire", rules=rules, leaseMs=MINUTE)
    waiting = made.send("rate.acquire", BUCKET, asks=True, rules=rules, timeoutMs=5 * MINUTE, leaseMs=MINUTE)
    made.settle()

    made.turn(-HOUR)
    assert made.results(waiting) == []
    assert made.result("rate.acquire", rules=rules)["granted"] == 0
    made.turn(HOUR)
    assert made.results(waiting) == []
    made.turn(MINUTE)
    (given,) = made.results(waiting)
    assert given["grantedAt"] >= ahead["expiresAt"]

    # A lease that was given in a leap is over no later than the lane's own time says.
    made.turn(DAY)
    leaped = made.result("rate.acquire", rules=rules, leaseMs=SECOND)
    made.turn(-DAY)
    assert made.result("rate.acquire", rules=rules)["granted"] == 0
    made.turn(DAY + SECOND)
    after = made.result("rate.acquire", rules=rules)
    assert after["granted"] == 1
    assert after["grantedAt"] >= leaped["expiresAt"]
    assert not report_on(made, made.settle()).violations


def test_a_cooldown_lasts_as_long_as_it_was_meant_to() -> None:
    made = Buckets()
    rules = [{"ruleId": "r", "windowMs": 1, "requestsPerWindow": 10}]
    until = made.result("rate.penalize", cooldownMs=MINUTE)["cooldownUntil"]
    made.turn(-HOUR)
    assert made.result("rate.penalize", cooldownMs=MINUTE)["cooldownUntil"] == until
    told = made.result("rate.acquire", rules=rules)
    assert (told["granted"], told["waitMs"]) == (0, MINUTE)
    made.turn(HOUR + MINUTE)
    assert made.result("rate.acquire", rules=rules)["granted"] == 1
