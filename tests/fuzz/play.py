"""One game of the fuzzer: right and wrong commands in turn, and what has to hold whatever they were.

`python -m tests.fuzz.play 600` plays for ten minutes and names the seed of a game that is lost.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from agents.families import FAMILIES
from tests.fuzz.fuzzed_lane import START, Fed, FuzzedLane
from tests.fuzz.mutations import VALID, Draft, right_draft, right_headers, write_json, wrong_draft
from tests.fuzz.odd_values import FRESH_KEY
from tests.fuzz.outputs import check_outputs, check_stored

Step = Draft | int
"""A record, or milliseconds that pass; 0 ends the batch."""

_PASSING = (1, 10, 1000, 60_000, 3_600_000, 86_400_000, 7 * 86_400_000)
_NO_EFFECT = ("refused", "repeated")


def game(chance: Random, longest: int = 30) -> list[Step]:
    """A list of steps."""
    steps: list[Step] = []
    for _ in range(chance.randint(1, longest)):
        kind = chance.random()
        if kind < 0.08:
            steps.append(0)
        elif kind < 0.25:
            steps.append(chance.choice(_PASSING))
        else:
            steps.append(wrong_draft(chance) if kind < 0.8 else right_draft(chance))
    return steps


def play(steps: list[Step]) -> list[Fed]:
    """Play a game and check all of it; returns what became of the records."""
    lane = FuzzedLane()
    played = run(lane, steps)
    for fed in played:
        check_outputs(fed)
    check_state(lane)
    _check_no_trace(lane, steps, played)
    _check_next_command(lane)
    check_skipping(lane, played)
    return played


def run(
    lane: FuzzedLane, steps: list[Step], wanted: Callable[[int], bool] = lambda number: True
) -> list[Fed]:
    """Take the steps with a lane; of the records only those whose number is wanted, though time goes on."""
    fed: list[Fed] = []
    number = 0
    for step in steps:
        if isinstance(step, int):
            lane.now += step
            if step == 0:
                lane.commit()
            continue
        if wanted(number):
            fed.append(lane.feed(step))
        else:
            lane.fire_due()
        number += 1
    lane.commit()
    return fed


def check_state(lane: FuzzedLane) -> None:
    """All that is stored can be read, and is as the changelog's schema says; no remembered answer is over 2 KiB."""
    for table, records in lane.state().items():
        for value in records.values():
            check_stored(value)
            assert len(value) <= 2048 or table != "lane.answer"


def _check_no_trace(lane: FuzzedLane, steps: list[Step], played: list[Fed]) -> None:
    """A lane that never saw the wrong records is in the same state and wrote the same."""
    twin = FuzzedLane()
    alive = [not (fed.is_dead or fed.outcome == "forwarded") for fed in played]
    seen = run(twin, steps, alive.__getitem__)
    assert _own(seen) == _own([fed for fed, is_alive in zip(played, alive, strict=True) if is_alive])
    assert without_progress(twin.state()) == without_progress(lane.state())

    heir = FuzzedLane()
    effective = [
        is_alive and fed.outcome not in _NO_EFFECT for fed, is_alive in zip(played, alive, strict=True)
    ]
    seen = run(heir, steps, effective.__getitem__)
    assert _own(seen) == _own([fed for fed, counts in zip(played, effective, strict=True) if counts])
    assert of_machines(heir.state()) == of_machines(lane.state())


def _check_next_command(lane: FuzzedLane) -> None:
    """Right commands for an entity that nobody touched give what they give in a lane that saw nothing else."""
    newborn = FuzzedLane(now=lane.now)
    for valid in {valid.fields["type"]: valid for valid in VALID}.values():
        body = write_json(valid.body(FRESH_KEY, f"next-{valid.fields['type']}"))
        draft = Draft(valid.topic, FRESH_KEY.encode(), body, right_headers(Random(1)))
        fed, expected = lane.feed(draft), newborn.feed(draft)
        assert not fed.is_dead
        assert (fed.outcome, fed.outputs) == (expected.outcome, expected.outputs)


def check_skipping(lane: FuzzedLane, played: list[Fed]) -> None:
    """Records that come again, as they do after a crash, are skipped."""
    for fed in played:
        again = lane.feed_again(fed.record)
        assert (again.outcome, again.outputs) == ("skipped", [])


def without_progress(state: dict[str, Any]) -> dict[str, Any]:
    """The state but for offsets and transaction numbers."""
    return {table: records for table, records in state.items() if table != "lane.progress"}


def of_machines(state: dict[str, Any]) -> dict[str, Any]:
    """What the machines have stored and scheduled, without what the lane remembers of answers."""
    families = {family.name for family in FAMILIES}
    kept = {table: records for table, records in state.items() if not table.startswith("lane.")}
    timers = state.get("lane.timer", {})
    return {**kept, "lane.timer": {key: value for key, value in timers.items() if key[1] in families}}


def _own(played: list[Fed]) -> list[Any]:
    """What records wrote, and in which order; timers may have fired beside another record."""
    by_timers = [output for fed in played for output in fed.timer_outputs]
    return [[fed.outputs for fed in played], by_timers]


def main(seconds: float, seed: int) -> None:
    """Play games of new seeds until the time is over; a game that is lost is an error that names its seed."""
    outcomes: Counter[str] = Counter()
    started, games = time.monotonic(), 0
    while time.monotonic() - started < seconds:
        try:
            outcomes.update(fed.outcome for fed in play(game(Random(seed + games), 60)))
        except BaseException:
            print(f"lost: play(game(Random({seed + games}), 60))", file=sys.stderr)
            raise
        games += 1
    print(f"{games:,} games from seed {seed}, {outcomes.total():,} records: {dict(outcomes.most_common())}")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else START)
