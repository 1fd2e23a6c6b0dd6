"""An event is recorded after the run's end, or a second end.

Elsewhere: a late write of an executor, a retry or a timer passes a check that was made before the end was stored.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

from agents.run.eviction import EVICTED_AFTER_END_MS, FORGOTTEN_AFTER_MS
from streams.lane import Step
from tests.integration.lane_rig import DiedError, Rig

EVENT = {"type": "log", "line": "x"}


def check_ends(rig: Rig, runs: set[str]) -> None:
    """Every run has one end, which is its last event and its terminal state."""
    last: dict[str, dict[str, Any]] = {}
    for event in rig.events():
        before = last.get(event["runId"])
        assert before is None or before["type"] != "terminal", f"{event} after {before}"
        assert event["seq"] == (before["seq"] if before else 0) + 1
        last[event["runId"]] = event
    ends = [json.loads(record.value()) for record in rig.read("run-terminals")]
    assert sorted(end["runId"] for end in ends) == sorted(runs)
    for end in ends:
        assert last[end["runId"]]["type"] == "terminal"
        assert last[end["runId"]]["seq"] == end["seq"]


def test_writers_race_with_ends_over_crashes(rig: Rig) -> None:
    chance = random.Random(7)
    runs = [rig.run_id() for _ in range(6)]
    writes: list[tuple[str, dict[str, Any]]] = [
        ("run.submit", {"name": "work"}),
        ("events.append", {"event": EVENT}),
        ("events.append", {"event": {"type": "progress", "status": "at work"}, "attempt": 1}),
        ("terminal.set", {"status": "completed", "result": 1}),
        ("terminal.set", {"status": "failed", "error": "late"}),
        ("run.cancel", {}),
    ]
    for step in (None, *Step):
        for run_id in chance.sample(runs * 4, 12):
            type_, fields = chance.choice(writes)
            rig.send(run_id, type_, **fields)

        def dies(reached: Step, at: Step | None = step) -> None:
            if reached is at:
                raise DiedError

        lane = rig.owner(at_step=dies, new_disk=chance.random() < 0.3)
        with suppress(DiedError):
            lane.process(rig.commands(lane))
        lane.close()
    for run_id in runs:
        rig.send(run_id, "run.cancel")
        rig.send(run_id, "events.append", event=EVENT)
    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    check_ends(rig, set(runs))


def test_no_event_for_a_week_after_the_end_whoever_owns_the_lane_and_from_then_a_new_run(rig: Rig) -> None:
    run_id = rig.run_id()
    rig.send(run_id, "events.append", command_id="before", event=EVENT)
    rig.send(run_id, "terminal.set", status="completed")
    lane = rig.owner()
    lane.process(rig.commands(lane))
    ended_at = lane.clock

    def asks(correlation_id: str) -> None:
        # One that was answered before its end, and one that comes too late.
        rig.send(
            run_id, "events.append", command_id="before", event=EVENT, headers=rig.address(correlation_id)
        )
        rig.send(run_id, "events.append", event=EVENT, headers=rig.address(correlation_id))
        lane.process(rig.commands(lane))

    asks("ended")
    lane.process((), ended_at + EVICTED_AFTER_END_MS)
    lane.close()
    lane = rig.owner(new_disk=True)
    asks("evicted")
    assert len(rig.events()) == 2
    lane.process((), ended_at + EVICTED_AFTER_END_MS + FORGOTTEN_AFTER_MS)
    lane.close()
    lane = rig.owner(new_disk=True)
    asks("forgotten")
    lane.close()

    answers = {name: [reply["ok"] for reply in replies] for name, replies in rig.replies().items()}
    assert answers == {"ended": [True, False], "evicted": [False, False], "forgotten": [True, True]}
    assert [event["seq"] for event in rig.events()] == [1, 2, 1, 2]
