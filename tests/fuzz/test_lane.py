"""Wrong commands against a lane: nothing but what the contract says comes of any (spec wire 1 to 5)."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.fuzzed_lane import FuzzedLane
from tests.fuzz.mutations import VALID, one_wrong_value, right_draft
from tests.fuzz.odd_values import VALUES
from tests.fuzz.outputs import check_outputs
from tests.fuzz.play import check_skipping, check_state, game, play
from tests.fuzz.valid_commands import ValidCommand

randoms = st.randoms(use_true_random=False)


@given(randoms)
def test_wrong_commands_leave_no_trace(chance: Random) -> None:
    play(game(chance))


def test_odd_values_in_the_place_of_every_value() -> None:
    """A few in each place, which differ from place to place; the long profile puts every one in every place."""
    lane = FuzzedLane()
    outcomes = set()
    of_each = 12 if settings().max_examples < 1000 else len(VALUES)
    for number, draft in enumerate(one_wrong_value(of_each)):
        fed = lane.feed(draft)
        check_outputs(fed)
        outcomes.add(fed.outcome)
        lane.now += 1 if number % 100 else 3_600_000
        if number % 50 == 0:
            lane.commit()
    lane.commit()
    check_state(lane)
    assert outcomes >= {"applied", "refused", "INVALID_JSON", "KEY_MISMATCH", "UNKNOWN_COMMAND"}


@given(randoms, st.sampled_from(VALID))
def test_every_valid_command_is_processed(chance: Random, valid: ValidCommand) -> None:
    lane = FuzzedLane()
    fed = lane.feed(right_draft(chance, valid))
    assert fed.outcome in ("applied", "refused")
    check_outputs(fed)
    lane.commit()
    check_state(lane)
    check_skipping(lane, [fed])
