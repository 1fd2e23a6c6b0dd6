"""What rate buckets cost, how many may wait and in which order, and what is forgotten (spec coordinator 7, wire 7)."""

from __future__ import annotations

import pytest

from agents.rate import bucket as bucket_module
from agents.rate import granting, turns
from agents.rate.tables import BUCKETS, GRANTS, LEASES
from agents.rate.windows import SLOTS
from tests.rate_lane import Fields, RateLane, code, result, rule

SECOND, MINUTE, HOUR, DAY = 1000, 60_000, 3_600_000, 86_400_000


@pytest.fixture
def lane() -> RateLane:
    """A lane in memory that serves rate buckets."""
    return RateLane()


@pytest.mark.parametrize("kind", ["window", "sliding", "bucket"])
def test_an_acquire_costs_the_same_however_many_came_before(lane: RateLane, kind: str) -> None:
    rules = [rule(10**9, MINUTE, kind=kind), rule(10**9, HOUR, "other", kind=kind)]
    costs = []
    for _ in range(2000):
        lane.pass_time(37)
        assert lane.acquire(rules)["granted"] == 1
        size = sum(len(lane.state[key]) for key in lane.touched.writes)
        costs.append((len(lane.touched.reads), len(lane.touched.writes), size))
    assert {cost[1] for cost in costs} == {2}  # The head, with what is counted for the rules, and the grant.
    assert costs[5][0] == costs[-1][0]
    # A sliding window has so many slots, of a few digits each.
    assert max(size for _, _, size in costs) < 900 + 2 * 5 * SLOTS


def test_what_is_refused_writes_nothing(lane: RateLane) -> None:
    rules = [rule(1, MINUTE)]
    lane.acquire(rules)
    for fields in ({}, {"requested": 2}, {"requested": 2, "minimum": 2}):
        lane.send("rate.acquire", rules=rules, **fields)
        assert lane.touched.writes == []


def test_a_large_wish_waits_in_front_and_is_served_when_it_can_be(lane: RateLane) -> None:
    rules = [rule(10, SECOND, kind="bucket")]
    lane.acquire(rules, requested=10)
    lane.wait(rules, "large", runId="x", requested=8, minimum=8)
    assert lane.acquire(rules, runId="y")["granted"] == 0
    lane.pass_time(500)
    # Five tokens are there, and nobody without a place in the queue takes them away.
    assert lane.acquire(rules, runId="y")["granted"] == 0
    lane.pass_time(299)
    assert lane.take_late() == []
    lane.pass_time(1)
    assert [(name, given["granted"]) for name, given in lane.take_late()] == [("large", 8)]


def test_each_of_ten_runs_is_served_within_the_first_turn_of_its_round(lane: RateLane) -> None:
    rules = [rule(1, 100)]
    lane.acquire(rules)
    for number in range(1000):
        lane.wait(rules, f"many{number}", runId="many", timeoutMs=300_000)
    for served in range(5):
        lane.pass_time(100)
        assert [name for name, _ in lane.take_late()] == [f"many{served}"]
    for number in range(10):
        lane.wait(rules, f"one{number}", runId=f"run{number}", timeoutMs=300_000)
    lane.pass_time(12 * 100)
    ones = [f"one{number}" for number in range(10)]
    assert [name for name, _ in lane.take_late()] == ["many5", *ones, "many6"]


def test_permits_are_shared_evenly_whatever_one_call_costs(lane: RateLane) -> None:
    rules = [rule(10, 100)]
    lane.acquire(rules, requested=10)
    for number in range(40):
        lane.wait(rules, f"dear{number}", runId="dear", requested=10, minimum=10)
        for part in range(5):
            lane.wait(rules, f"cheap{number}.{part}", runId="cheap", requested=2, minimum=2)
    lane.pass_time(40 * 100)
    given = {"dear": 0, "cheap": 0}
    for name, grant in lane.take_late():
        given[name[:4].replace("chea", "cheap")] += grant["granted"]
    assert abs(given["dear"] - given["cheap"]) <= 10


def test_a_run_that_asks_again_at_once_does_not_starve_one_that_waits(lane: RateLane) -> None:
    rules = [rule(1, 100)]
    lane.acquire(rules)
    for number in range(10):
        lane.wait(rules, f"patient{number}", runId="patient")
    lane.wait(rules, "eager0", runId="eager")
    served: list[str] = []
    for _ in range(12):
        lane.pass_time(100)
        for name, _ in lane.take_late():
            served.append(name.rstrip("0123456789"))
            if served[-1] == "eager":
                lane.wait(rules, f"eager{len(served)}", runId="eager")
    assert served.count("patient") == 6


def test_a_full_queue_refuses_with_what_is_waiting(lane: RateLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_WAITING", 5)
    monkeypatch.setattr(turns, "MAX_WAITING_OF_RUN", 3)
    rules = [rule(1, HOUR)]
    lane.acquire(rules)
    for number in range(3):
        lane.wait(rules, f"x{number}", runId="x")
    refused = lane.send("rate.acquire", rules=rules, runId="x", timeoutMs=1000)
    assert code(refused) == "RATE_QUEUE_FULL"
    assert (refused["error"]["waiting"], refused["error"]["limit"]) == (3, 3)
    assert lane.touched.writes == []
    lane.wait(rules, "y", runId="y")
    lane.wait(rules, "z")
    refused = lane.send("rate.lease", rules=rules, requested=1, runId="w", timeoutMs=1000)
    assert (code(refused), refused["error"]["limit"]) == ("RATE_QUEUE_FULL", 5)
    assert lane.acquire(rules)["granted"] == 0


def test_who_cannot_be_answered_does_not_wait(lane: RateLane) -> None:
    rules = [rule(1, SECOND)]
    assert lane.acquire(rules)["granted"] == 1
    assert lane.acquire(rules, timeoutMs=5000, reply=False)["granted"] == 0
    assert lane.touched.writes == []
    assert lane.peek(rules)["waiting"] == 0


def test_the_answer_to_a_command_that_waited_is_remembered(lane: RateLane) -> None:
    rules = [rule(1, SECOND)]
    lane.acquire(rules)
    lane.wait(rules, "w", timeoutMs=1500)
    lane.wait(rules, "late", timeoutMs=1500)
    lane.pass_time(1500)
    assert [name for name, _ in lane.take_late()] == ["w", "late"]
    assert lane.remembered == ["w", "late"]


def test_a_waiting_command_is_answered_as_often_as_it_was_sent_and_waits_once(lane: RateLane) -> None:
    rules = [rule(1, SECOND)]
    lane.acquire(rules)
    for _ in range(3):
        lane.wait(rules, "w", timeoutMs=5000)
    assert lane.peek(rules)["waiting"] == 1
    lane.pass_time(SECOND)
    assert [(name, given["granted"]) for name, given in lane.take_late()] == [("w", 1)] * 3
    assert lane.remembered == ["w"]


@pytest.mark.parametrize("stored", [[], [rule(1, MINUTE)]])
def test_a_waiting_command_waits_on_when_the_rules_change(lane: RateLane, stored: list[Fields]) -> None:
    lane.send("rate.rules.put", rules=[rule(2, SECOND)])
    ask = {"requested": 2, "minimum": 2, "timeoutMs": MINUTE}
    assert result(lane.send("rate.acquire", command_id="first", **ask))["granted"] == 2
    assert lane.send("rate.acquire", command_id="waits", **ask) == {"waits": True}
    lane.send("rate.rules.put", rules=stored)
    assert lane.send("rate.acquire", command_id="waits", **ask) == {"waits": True}
    assert code(lane.send("rate.acquire", command_id="new", **ask)).startswith("RATE_")
    lane.pass_time(SECOND)
    assert [(command, given["granted"]) for command, given in lane.take_late()] == [("waits", 2)] * 2


def test_a_bucket_counts_for_so_many_rules(lane: RateLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bucket_module, "MAX_STORED_RULES", 4)
    monkeypatch.setattr("agents.rate.acquiring.MAX_STORED_RULES", 4)
    lane.acquire([rule(5, 50, f"short{number}", kind="sliding") for number in range(3)])
    lane.acquire([rule(5, HOUR, "long")])
    refused = lane.send("rate.acquire", rules=[rule(5, HOUR, "new")])
    assert code(refused) == "RATE_TOO_MANY_RULES"
    assert lane.touched.writes == []
    lane.pass_time(60)
    lane.acquire([rule(5, HOUR, "new")])
    assert set(lane.record(BUCKETS, "b").rules) == {f"window:{HOUR}:long", f"window:{HOUR}:new"}


def test_a_limit_may_change_and_what_was_used_counts(lane: RateLane) -> None:
    assert lane.acquire([rule(5, HOUR)], requested=4)["granted"] == 4
    assert lane.acquire([rule(3, HOUR)])["granted"] == 0
    assert lane.acquire([rule(6, HOUR)], requested=9)["granted"] == 2
    assert lane.acquire([rule(6, MINUTE)], requested=9)["granted"] == 6


def test_rules_that_are_counted_together_hold_at_their_strictest(lane: RateLane) -> None:
    assert lane.acquire([rule(5, HOUR, maxConcurrency=4), rule(9, HOUR)], requested=9)["granted"] == 4
    assert lane.acquire([rule(5, HOUR)], requested=9)["granted"] == 1


def test_a_rule_of_less_than_a_permit_is_refused_loudly(lane: RateLane) -> None:
    assert code(lane.send("rate.acquire", rules=[rule(0.5, SECOND)])) == "RATE_NEVER_GRANTED"
    assert lane.acquire([rule(2.9, SECOND)], requested=5)["granted"] == 2


def test_only_the_newest_grants_can_be_settled(lane: RateLane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granting, "MAX_KEPT_GRANTS", 10)
    monkeypatch.setattr(granting, "_PRUNE_EVERY", 5)
    rules = [rule(1000, HOUR)]
    for number in range(25):
        lane.acquire(rules, command_id=f"a{number}")
    assert len(lane.keys(GRANTS)) == 10
    assert code(lane.send("rate.settle", acquireCommandId="a14", used=0)) == "RATE_GRANT_NOT_FOUND"
    assert result(lane.send("rate.settle", acquireCommandId="a15", used=0))["refunded"] == 1


def test_many_leases_that_expire_at_once_end_little_by_little(
    lane: RateLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.rate.leases.MAX_EXPIRED", 7)
    rules = [rule(100, DAY, maxConcurrency=20)]
    for _ in range(20):
        lane.acquire(rules, leaseMs=1000)
    lane.wait(rules, "w", requested=20, minimum=20)
    lane.pass_time(1000)
    assert [(name, given["granted"]) for name, given in lane.take_late()] == [("w", 20)]
    assert len(lane.keys(LEASES)) == 1


def test_an_idle_bucket_leaves_nothing_and_its_numbers_go_on(lane: RateLane) -> None:
    rules = [rule(3, MINUTE, maxConcurrency=2), rule(3, MINUTE, "s", kind="sliding"), rule(3, 0, "never")]
    lease = lane.acquire(rules, leaseMs=1000)
    lane.acquire([rule(3, MINUTE, "b", kind="bucket")], requested=2)
    lane.send("rate.penalize", cooldownMs=5000)
    lane.pass_time(DAY + 3 * HOUR)
    assert lane.state == {}
    assert lane.timers == {}
    again = lane.acquire(rules)
    assert again["fencingNumber"] > lease["fencingNumber"]
    old = {"leaseId": lease["leaseId"], "fencingNumber": lease["fencingNumber"]}
    assert result(lane.send("rate.release", **old)) == {"released": False}
    assert lane.peek(rules)["leases"] == 1


@pytest.mark.parametrize(
    "lease_id", ["", "-", "1", "1-", "-1", "1-1", "²-²", "9" * 30 + "-1", "x-y", "1-1-1"]
)
def test_what_is_no_lease_is_not_released(lane: RateLane, lease_id: str) -> None:
    lane.acquire([rule(3, MINUTE, maxConcurrency=2)])
    assert result(lane.send("rate.release", leaseId=lease_id, fencingNumber=1)) == {"released": False}
    assert code(lane.send("rate.settle", leaseId=lease_id, used=1)) == "RATE_GRANT_NOT_FOUND"


@pytest.mark.parametrize("kind", ["window", "sliding", "bucket"])
@pytest.mark.parametrize("permits", [1, 1000, 10**9])
@pytest.mark.parametrize("window_ms", [1, 31, 1000, 366 * DAY])
def test_rates_from_one_to_a_billion_and_windows_from_a_millisecond_to_a_year(
    lane: RateLane, kind: str, permits: int, window_ms: int
) -> None:
    rules = [rule(permits, window_ms, kind=kind)]
    for _ in range(3):
        assert lane.acquire(rules, requested=10**12)["granted"] == permits
        told = lane.acquire(rules)
        assert told["granted"] == 0
        lane.now += max(told["waitMs"], window_ms + -(-window_ms // SLOTS))
