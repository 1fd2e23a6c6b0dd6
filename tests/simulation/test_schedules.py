"""Thousands of schedules of faults over the real lane: none of them breaks a promise.

`python -m tests.simulation --minutes M` runs more of them, `--seed N --trace` replays one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.families.registry import simulated_families
from tests.simulation.schedules import processes, run_many, run_seed

ROOT = Path(__file__).parents[2]
SCHEDULES = int(os.environ.get("SIMULATION_SCHEDULES", "10000"))
MINUTES = os.environ.get("SIMULATION_MINUTES")


def test_no_schedule_breaks_a_promise() -> None:
    with processes() as pool:
        if MINUTES is not None:
            summary = run_many(pool, 0, None, seconds=60 * float(MINUTES))
        else:
            summary = run_many(pool, 0, SCHEDULES)
            assert summary.schedules == SCHEDULES
    print(summary)
    assert not summary.failures, str(summary.failures[0])
    for befell in ("lost marker", "kill", "power loss", "deaf", "retention", "topics anew"):
        assert summary.tally[f"times: {befell}"], f"nothing of this kind happened: {befell}"


@pytest.mark.parametrize("seed", [11, 12])
def test_a_seed_decides_all_that_happens(seed: int) -> None:
    command = [sys.executable, "-m", "tests.simulation", "--seed", str(seed), "--trace"]
    runs = [subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300) for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout.splitlines()) > 100
    assert runs[0].stdout.endswith("nothing is wrong\n")


def test_a_failure_shows_what_happened_and_how_to_see_it_again() -> None:
    with processes(1) as pool:
        summary = run_many(pool, 0, 100, mutation="write_the_store_before_the_commit", stop_at_first=True)
    text = str(summary.failures[0])
    assert "all is well from now on" in text
    assert f"--seed {summary.failures[0].seed} --trace" in text


def test_every_family_that_is_served_takes_part() -> None:
    world = run_seed(0)
    assert {simulated.family.commands.topic for simulated in simulated_families()} == set(
        world.rules.families
    )
