"""What is counted for one rule, against lists of what was charged: rates of 1 to 10^9, windows of 1 ms to a year."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agents.rate.windows import DAY_MS, SLOTS, kind_of, used_of
from schemas.stored_rates import Limit
from tests.property.rate_model import Counted, Rule

YEAR_MS = 366 * DAY_MS
START = 1_700_000_000_000

rules = st.builds(
    Rule,
    rule_id=st.just("r"),
    kind=st.sampled_from(["window", "sliding", "bucket"]),
    window_ms=st.one_of(st.integers(1, 100), st.integers(1, YEAR_MS), st.sampled_from([1000, YEAR_MS])),
    permits=st.one_of(st.integers(1, 10), st.integers(1, 10**9)),
)
shares = st.integers(0, 8)
"""Of a window or of a limit, in eighths."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("pass"), shares, st.integers(0, 3)),
        st.tuples(st.just("charge"), shares, st.integers(0, 3)),
        st.tuples(st.just("refund"), shares, st.integers(0, 5)),
    ),
    max_size=25,
)


@given(rules, steps)
def test_what_is_used_is_what_was_charged_and_still_counts(
    rule: Rule, todo: list[tuple[str, int, int]]
) -> None:
    limit = Limit(rule.rule_id, rule.kind, rule.window_ms, rule.permits)
    kind, now = kind_of(limit), START
    state, model = kind.new(limit, now), Counted(now, missing_at=now)
    charged: list[tuple[int, int]] = []
    for what, share, more in todo:
        state = kind.advance(limit, state, now)
        if what == "pass":
            now += rule.window_ms * share // 8 + more
        elif what == "charge":
            count = rule.permits * share // 8 + more
            state = kind.charge(limit, state, count, now)
            model.charge(rule, count, now)
            charged.append((now, count))
        elif charged:
            at, most = charged[more % len(charged)]
            # Permits of another grant of the same time are not given back.
            if sum(each == at for each, _ in charged) == 1:
                count = most * share // 8
                state = kind.refund(limit, state, count, at, now)
                model.refund(rule, count, at, now)
                charged.remove((at, most))
        state = kind.advance(limit, state, now)
        used = used_of(state)
        assert used == model.used(rule, now)
        assert len(state.slots) <= SLOTS + 2
        for wanted in {1, used // 2, used} if used else ():
            back = kind.returned_at(limit, state, max(1, wanted), now)
            assert model.used(rule, back) <= used - max(1, wanted) < model.used(rule, back - 1)
        if now >= kind.idle_at(limit, state):
            assert used == 0


@given(rules, st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5)), min_size=1, max_size=20), st.data())
def test_nothing_is_better_than_not_having_charged_what_is_refunded(
    rule: Rule, asks: list[tuple[int, int]], data: st.DataObject
) -> None:
    limit = Limit(rule.rule_id, rule.kind, rule.window_ms, rule.permits)
    kind, now = kind_of(limit), START
    state = never = kind.new(limit, now)
    refunded = data.draw(st.integers(0, len(asks) - 1))
    at = count = 0
    for number, (share, wanted) in enumerate(asks):
        now += rule.window_ms * share // 8
        state, never = kind.advance(limit, state, now), kind.advance(limit, never, now)
        asked = min(wanted, rule.permits - used_of(state))
        if asked > 0:
            state = kind.charge(limit, state, asked, now)
            if number == refunded:
                at, count = now, asked
            else:
                never = kind.charge(limit, never, asked, now)
    now += rule.window_ms * data.draw(shares) // 8
    state, never = kind.advance(limit, state, now), kind.advance(limit, never, now)
    if count:
        state = kind.refund(limit, state, count, at, now)
    assert used_of(state) >= used_of(never)


def test_a_refund_does_not_give_back_tokens_that_have_been_refilled() -> None:
    limit = Limit("r", "bucket", 1000, 4)
    kind = kind_of(limit)
    state = kind.charge(limit, kind.new(limit, START), 4, START)
    half = START + 500
    state = kind.charge(limit, kind.advance(limit, state, half), 2, half)
    # Without the first charge the bucket would have stayed full until now: two tokens would be missing.
    assert used_of(kind.refund(limit, state, 4, START, half)) == 2
