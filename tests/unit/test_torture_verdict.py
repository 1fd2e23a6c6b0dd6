"""A torture's verdict: waiting for a broker that is away is no fault, and what `runlane verify` finds is a problem."""

from __future__ import annotations

from streams.torture.outages import Outages
from streams.torture.verification import broken_rules
from streams.verify.cut import Cut, RepeatLimits
from streams.verify.families import RULES
from streams.verify.findings import Place, Tally
from streams.verify.report import report_of


def test_the_time_in_which_the_broker_is_away_does_not_count() -> None:
    now = 100.0
    outages = Outages(lambda: now)
    assert outages.served_s(90, 100) == 10
    with outages.one():
        now = 130.0
        assert outages.served_s(90, 130) == 10
        assert outages.served_s(110, 130) == 0
        now = 150.0
    assert outages.served_s(90, 160) == 20
    assert outages.served_s(150, 160) == 10
    assert outages.served_s(80, 90) == 10


def test_a_rule_that_is_broken_is_a_problem() -> None:
    tally = Tally(shown_per_rule=1)
    seq = next(rule for rule in RULES if rule.name == "seq")
    for offset in (3, 4, 5):
        tally.violation(seq, Place("run-events", 1, offset), "seq 7 where 6 is due")
    report = report_of(tally, RULES, Cut(2, RepeatLimits(1000, 1000), None), {})
    assert list(broken_rules(report)) == [
        "runlane verify: seq: run-events[1]@3: seq 7 where 6 is due",
        "runlane verify: seq: 2 more violations",
    ]
    assert list(broken_rules(report_of(Tally(), RULES, report.cut, {}))) == []
