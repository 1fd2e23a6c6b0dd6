"""The same commands and timers in the same order give the same bytes, whatever the process (DESIGN 4).

`python -m tests.property.test_rate_determinism SEED ...` prints the digest of what each seed's commands make.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

from tests.rate_lane import RateLane
from tests.simulation.families.rate_drafts import draft
from tests.simulation.families.registry import Answer

ROOT = Path(__file__).parents[2]
SEEDS = range(12)
KEYS = ["b0", "b1", "b2"]


def replay(seed: int) -> str:
    """The digest of every byte that a seed's commands make the machine write and answer."""
    random, lane = Random(seed), RateLane()
    answered: list[Answer] = []
    for number in range(150):
        key, body = draft(random, KEYS, lambda: answered[-20:])
        fields = {name: value for name, value in body.items() if name not in ("type", "bucketId")}
        reply = lane.send(body["type"], key, command_id=f"c{number}", **fields)
        if reply.get("ok"):
            answered.append(Answer(key, f"c{number}", reply["result"]))
        lane.pass_time(random.choice([0, 1, 40, 400, 4000]))
    return lane.digest()


def test_another_process_with_other_hashes_gives_the_same_bytes() -> None:
    here = [replay(seed) for seed in SEEDS]
    assert len(set(here)) == len(here)
    for hashes in ("1", "4711"):
        there = subprocess.run(
            [sys.executable, "-m", "tests.property.test_rate_determinism", *map(str, SEEDS)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert there.stdout.split() == here


if __name__ == "__main__":
    print(*map(replay, map(int, sys.argv[1:])))
