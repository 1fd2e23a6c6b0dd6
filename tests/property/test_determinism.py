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

from tests.property.json_values import TEXT, VALUES
from tests.property.replay_log import replay
from tests.run_lane import DAY, HOUR, MINUTE

ROOT = Path(__file__).parents[2]

events = st.one_of(
    st.fixed_dictionaries({"type": st.just("log"), "line": TEXT}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["status", "progress"]), "status": TEXT},
        optional={"logs": VALUES, "ts": VALUES},
    ),
)
commands: dict[str, dict[str, Any]] = {
    "run.submit": {"name": TEXT, "params": VALUES, "pool": TEXT},
    "run.cancel": {"reason": VALUES},
    "run.finish": {},
    "run.status": {"waitMs": st.integers(0, 2000), "trace": st.booleans()},
    "events.append": {"event": events},
    "events.list": {"afterSeq": st.integers(0, 5), "timeoutMs": st.integers(0, 30_000)},
    "terminal.set": {"status": st.sampled_from(["completed", "failed"]), "result": VALUES, "error": TEXT},
    "terminal.get": {},
}
steps = st.one_of(
    st.sampled_from([1, 999, MINUTE, HOUR, DAY, 7 * DAY]).map(lambda ms: ["pass", ms]),
    *[
        st.tuples(st.just(type_), st.sampled_from(["a", "B/é"]), st.fixed_dictionaries(fields)).map(list)
        for type_, fields in commands.items()
    ],
)
logs = st.lists(steps, max_size=25)


@given(logs)
def test_the_same_log_gives_the_same_bytes(log: list[list[Any]]) -> None:
    assert replay(log) == replay(json.loads(json.dumps(log)))


@given(logs, st.lists(steps, min_size=1, max_size=1), st.integers(0, 25))
def test_the_digest_sees_what_changes(log: list[list[Any]], more: list[list[Any]], at: int) -> None:
    event = ["events.append", "new", {"event": {"type": "log", "line": json.dumps(more)}}]
    assert replay(log) != replay([*log[:at], event, *log[at:]])


@settings(max_examples=3)
@given(st.lists(steps, min_size=20, max_size=40))
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
