"""Rate buckets against a plain model, over any order of commands and any passing of time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.rate import turns
from agents.rate.tables import BUCKETS, LEASES, QUEUES, RENEWALS, TURNS, WAIT_PLACES, WAITS
from tests.property.rate_model import Bucket, Rule, Wait
from tests.rate_lane import RateLane, code, result

rules = st.builds(
    Rule,
    rule_id=st.sampled_from(["r", "r\0"]),
    kind=st.sampled_from(["window", "sliding", "bucket"]),
    window_ms=st.sampled_from([0, 1, 7, 33, 1000, 1000, 1000, 31_536_000_000]),
    permits=st.sampled_from([1, 2, 3, 3, 10, 10**9]),
    concurrency=st.sampled_from([0, 0, 0, 1, 2, 5]),
)
rule_sets = st.lists(rules, min_size=1, max_size=2, unique_by=lambda rule: rule.key)
permits = st.sampled_from([1, 1, 1, 2, 3, 10])
timeouts = st.sampled_from([0, 0, 1, 500, 1000, 2500])
lease_times = st.sampled_from([1000, 1500, 60_000])
runs = st.sampled_from(["", "x", "y"])


class RateOverTime(RuleBasedStateMachine):
    """One bucket on one lane; every reply, late answer and stored key is compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = RateLane()
        self.model = Bucket()
        self.commands = 0
        self.given: dict[str, dict[str, Any]] = {}
        """Command id -> result, of what was granted."""

    @initialize(sets=st.lists(rule_sets, min_size=1, max_size=2))
    def choose_rules(self, sets: list[list[Rule]]) -> None:
        first = sets[0]
        # A rule is counted together with its like only under one limit.
        limits = {rule.key: rule for rule in (*(sets[-1]), *first)}
        self.sets = [[limits[rule.key] for rule in chosen] for chosen in sets]

    @rule(
        of=st.integers(0, 1),
        requested=permits,
        minimum=permits,
        run=runs,
        timeout=timeouts,
        lease=lease_times,
        is_block=st.booleans(),
    )
    def ask(
        self, of: int, requested: int, minimum: int, run: str, timeout: int, lease: int, is_block: bool
    ) -> None:
        self.commands += 1
        command, now, chosen = f"c{self.commands}", self.lane.now, self.sets[of % len(self.sets)]
        fields = {
            "rules": [each.as_sent() for each in chosen],
            "requested": requested,
            "minimum": minimum,
            "runId": run or None,
            "timeoutMs": timeout,
            "leaseMs": lease,
        }
        minimum = min(minimum, requested)
        reply = self.lane.send("rate.lease" if is_block else "rate.acquire", command_id=command, **fields)
        if any(each.permits < minimum or 0 < each.concurrency < minimum for each in chosen):
            assert code(reply) == "RATE_NEVER_GRANTED"
            return
        wish = Wait(command, run, 0, now, 0, chosen, requested, minimum, lease, is_block)
        was_waiting = bool(self.model.waits)
        granted = self.model.ask(wish, timeout)
        if granted is None:
            assert reply == {"waits": True}
            return
        given = result(reply)
        assert given["granted"] == granted
        if granted:
            self.take(command, given)
        elif not was_waiting:
            self.check_wait(given["waitMs"], wish)

    def check_wait(self, wait_ms: int, wish: Wait) -> None:
        """Who was told to wait so long gets permits then, and not before, unless others change something."""
        open_leases = [grant for grant in self.model.grants if grant.expires_at and grant.ended_at is None]
        ends = self.model.grantable(wish.rules, wish.requested, wish.minimum, self.lane.now + wait_ms)
        before = self.model.grantable(wish.rules, wish.requested, wish.minimum, self.lane.now + wait_ms - 1)
        if not open_leases:
            assert ends
            assert not before or wait_ms == 10
        else:
            assert ends or min(grant.expires_at for grant in open_leases) <= self.lane.now + wait_ms
            assert wait_ms >= 10

    def take(self, command: str, given: dict[str, Any]) -> None:
        """Note a grant."""
        grant = self.model.by_command[command]
        assert given["waitMs"] == 0
        assert ("leaseId" in given) is bool(grant.expires_at)
        if grant.expires_at:
            assert given["expiresAt"] == grant.expires_at
            assert all(
                given["fencingNumber"] > other.get("fencingNumber", 0) for other in self.given.values()
            )
        self.given[command] = given

    @rule(pick=st.integers(0, 3), used=st.integers(0, 5), by=st.sampled_from(["release", "settle", "settle"]))
    def end(self, pick: int, used: int, by: str) -> None:
        names = list(self.given)[-4:]
        if not names:
            return
        name = names[pick % len(names)]
        given, grant = self.given[name], self.model.by_command[name]
        is_open = grant.ended_at is None
        if by == "release":
            if not grant.expires_at:
                return
            of_lease = {"leaseId": given["leaseId"], "fencingNumber": given["fencingNumber"]}
            assert result(self.lane.send("rate.release", **of_lease)) == {"released": is_open}
            if is_open:
                self.model.end(grant, None, self.lane.now)
            return
        which = {"leaseId": given["leaseId"]} if grant.expires_at else {"acquireCommandId": name}
        reply = self.lane.send("rate.settle", **which, used=used)
        if not is_open:
            assert code(reply) == "RATE_GRANT_NOT_FOUND"
            return
        difference = used - grant.count
        assert result(reply) == {"refunded": max(0, -difference), "charged": max(0, difference)}
        self.model.end(grant, used, self.lane.now)

    @rule(pick=st.integers(0, 3), lease=lease_times)
    def renew(self, pick: int, lease: int) -> None:
        names = [name for name in self.given if self.model.by_command[name].expires_at][-4:]
        if not names:
            return
        name = names[pick % len(names)]
        given, grant = self.given[name], self.model.by_command[name]
        of_lease = {"leaseId": given["leaseId"], "fencingNumber": given["fencingNumber"]}
        renewed = result(self.lane.send("rate.renew", **of_lease, leaseMs=lease))
        if grant.ended_at is not None:
            assert renewed == {"renewed": False}
            return
        grant.expires_at = until = max(grant.expires_at, self.lane.now + lease)
        assert renewed == {"renewed": True, "expiresAt": until, "validMs": until - self.lane.now}

    @rule(ms=st.sampled_from([0, 1, 700, 700, 3000]))
    def penalize(self, ms: int) -> None:
        until = max(self.model.cooldown_until, self.lane.now + ms if ms else 0)
        assert result(self.lane.send("rate.penalize", cooldownMs=ms)) == {"cooldownUntil": until}
        self.model.cooldown_until = until

    @rule(of=st.integers(0, 1), requested=permits)
    def peek(self, of: int, requested: int) -> None:
        chosen, now, model = self.sets[of % len(self.sets)], self.lane.now, self.model
        seen = self.lane.peek([each.as_sent() for each in chosen], requested=requested)
        granted = 0 if model.waits else model.grantable(chosen, requested, 1, now)
        assert (seen["granted"], seen["waiting"]) == (granted, len(model.waits))
        assert seen["lostPermits"] == model.lost
        assert seen["leases"] == sum(1 for grant in model.grants if grant.expires_at and not grant.ended_at)
        for each, told in zip(chosen, seen["rules"], strict=True):
            counted = model.counted.get(each.key)
            used = counted.used(each, now) if counted is not None and each.window_ms else 0
            reserved, held = (counted.reserved, counted.held) if counted is not None else (0, 0)
            assert (told["used"], told["reserved"], told["held"]) == (used + reserved, reserved, held)
            if used and counted is not None:
                assert counted.used(each, told["resetsAt"]) == 0 < counted.used(each, told["resetsAt"] - 1)

    @rule(ms=st.sampled_from([1, 2, 30, 31, 333, 999, 1000, 1001, 4000]))
    def pass_time(self, ms: int) -> None:
        begin = self.lane.now
        self.lane.pass_time(ms)
        for now in range(begin + 1, begin + ms + 1):
            self.model.tick(now)

    @invariant()
    def who_waits_is_answered_as_the_model_says_and_in_its_order(self) -> None:
        late = self.lane.take_late()
        assert [(command, given["granted"]) for command, given in late] == self.model.late
        self.model.late.clear()
        for command, given in late:
            if given["granted"]:
                self.take(command, given)
            else:
                assert given["waitMs"] >= 10

    @invariant()
    def no_rule_is_ever_exceeded(self) -> None:
        assert self.model.violations == []

    @invariant()
    def what_is_stored_is_what_is_needed(self) -> None:
        lane, model = self.lane, self.model
        waiting = {(wait.run, wait.command_id) for wait in model.waits}
        waits = [(key[1], lane.record(WAITS, *key).command_id) for key in lane.keys(WAITS)]
        assert sorted(waits) == sorted(waiting)
        assert sorted(key[1] for key in lane.keys(WAIT_PLACES)) == sorted(
            wait.command_id for wait in model.waits
        )
        queued = {key[1]: lane.record(QUEUES, *key) for key in lane.keys(QUEUES)}
        assert {run: queue.tag for run, queue in queued.items()} == {
            run: tag for run, (tag, _) in model.turns.items()
        }
        turns_kept = {(tag, number) for _, tag, number in lane.keys(TURNS)}
        assert turns_kept == {(queue.tag, queue.number) for queue in queued.values()}
        open_leases = [grant for grant in model.grants if grant.expires_at and grant.ended_at is None]
        assert [key[1] for key in lane.keys(LEASES)] == sorted(grant.expires_at for grant in open_leases)
        renewed = {lane.record(RENEWALS, *key).expires_at for key in lane.keys(RENEWALS)}
        assert renewed <= {grant.expires_at for grant in open_leases}
        head = lane.record(BUCKETS, "b")
        if head is not None:
            assert (head.waiting, head.leases) == (len(waits), len(open_leases))
            if waits:
                assert (head.first_tag, head.first_number) == min(turns_kept)
        assert {name.partition(":")[0] for _, name in lane.timers} <= {"serve", "sweep", "expire", "wait"}
        assert sum(name.startswith("wait:") for _, name in lane.timers) == len(waits)


class RateInSmallSteps(RateOverTime):
    """The same when what is done in one go is little: more is done right after."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(turns, "MAX_SERVED", 1)

    def teardown(self) -> None:
        self.patch.undo()


TestRateOverTime = RateOverTime.TestCase
TestRateOverTime.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestRateInSmallSteps = RateInSmallSteps.TestCase
TestRateInSmallSteps.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
