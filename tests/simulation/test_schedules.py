"""Thousands of crash schedules over the real lane: none of them breaks a promise.

`python -m tests.simulation --schedules N` runs more of them, `--seed N --trace` replays one.
"""

from __future__ import annotations

import os

from tests.simulation.schedules import processes, run_many

SCHEDULES = int(os.environ.get("SIMULATION_SCHEDULES", "2000"))


def test_no_schedule_breaks_a_promise() -> None:
    with processes() as pool:
        summary = run_many(pool, 0, SCHEDULES)
    assert summary.schedules == SCHEDULES
    assert not summary.failures, str(summary.failures[0])
