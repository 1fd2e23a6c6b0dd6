"""The same commands and timers in the same order give the same bytes (DESIGN 4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.run_commands import RUN_COMMANDS
from tests.property.replay_log import replay
from tests.property.run_logs import commands, logs, steps

ROOT = Path(__file__).parents[2]


def test_every_command_of_runs_is_in_the_logs() -> None:
    assert commands.keys() == RUN_COMMANDS.by_type.keys()


@given(logs)
def test_the_same_log_gives_the_same_bytes(log: list[list[Any]]) -> None:
    assert replay(log) == replay(json.loads(json.dumps(log)))


@given(logs, st.lists(steps, min_size=1, max_size=1), st.integers(0, 40))
def test_the_digest_sees_what_changes(log: list[list[Any]], more: list[list[Any]], at: int) -> None:
    event = ["events.append", "new", {"event": {"type": "log", "line": json.dumps(more)}}]
    assert replay(log) != replay([*log[:at], event, *log[at:]])


@settings(max_examples=3)
@given(st.lists(steps, min_size=40, max_size=80))
def test_another_process_with_other_hashes_gives_the_same_bytes(log: list[list[Any]]) -> None:
    here = replay(log)
    for seed in ("1", "4711"):
        there = subprocess.run(
            [sys.executable, "-m", "tests.property.replay_log"],
            cwd=ROOT,
            input=json.dumps(log),
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert there.stdout.strip() == here
