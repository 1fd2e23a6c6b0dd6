"""Clients that compete for permits while they, the worker and the broker are killed: never more than a rule allows."""

from __future__ import annotations

from tests.crash.rate_race import race_site, run_race, settled


def test_no_rule_is_exceeded_whatever_is_killed() -> None:
    with race_site(seed=50) as site:
        run_race(site, kills=4, seed=50)
        verdict = settled(site)
    assert not verdict.violations, "\n".join(verdict.violations[:20])
    # Else it has tested little.
    assert {"worker", "worker, with its state", "client", "broker"} <= site.kills.keys()
    assert any(most == rule.permits for (_, rule), most in verdict.fullest.items())
    assert any(grant.is_block for grant in verdict.grants)
    assert any(grant.used < grant.count for grant in verdict.grants)
    assert verdict.lost_blocks
