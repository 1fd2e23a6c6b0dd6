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
from tests.property.json_values import TEXT, VALUES
from tests.property.replay_log import replay
from tests.run_lane import DAY, HOUR, MINUTE
from tests.sealed_sessions import sealed

ROOT = Path(__file__).parents[2]

events = st.one_of(
    st.fixed_dictionaries({"type": st.just("log"), "line": TEXT}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["status", "progress"]), "status": TEXT},
        optional={"logs": VALUES, "ts": VALUES},
    ),
)
keys = st.sampled_from(["k", "Ж", "integration_event"])
of_call = {"toolId": st.sampled_from(["t", "u"]), "inputHash": st.sampled_from(["1", "2"])}
fencing_numbers = st.integers(1, 3)
leases = st.sampled_from([1000, MINUTE, HOUR])
timeouts = st.integers(0, 30_000)
sessions = st.lists(st.sampled_from(["main", "spare"]), max_size=2, unique=True).map(
    lambda names: [sealed(name) for name in names]
)
lifetimes = st.sampled_from([0, MINUTE, HOUR])
traces = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["coordinator", "dynamic_worker"]),
        "phase": TEXT,
        "ts": st.integers(0, 5),
        "ms": st.integers(0, 5),
    },
    optional={"more": VALUES},
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
    "child.terminal.set": {"eventKey": keys, "data": VALUES},
    "child.terminal.get": {"eventKey": keys},
    "child.terminal.await": {"eventKey": keys, "timeoutMs": timeouts},
    "call.claim": {**of_call, "owner": TEXT, "leaseMs": leases},
    "call.renew": {**of_call, "fencingNumber": fencing_numbers, "leaseMs": leases},
    "call.publish": {
        **of_call,
        "fencingNumber": fencing_numbers,
        "error": st.one_of(st.none(), TEXT),
        "value": st.none(),
        "onFailure": st.sampled_from(["keep", "release"]),
    },
    "call.await": {**of_call, "timeoutMs": timeouts, "claim": st.booleans(), "owner": TEXT},
    "call.debug": {},
    "retry.put": {"params": VALUES, "ttlMs": lifetimes},
    "retry.claim": {"maxAttempts": st.integers(0, 2)},
    "launch.put": {"params": VALUES, "sessions": sessions, "dbSessionsTtlMs": lifetimes},
    "sessions.put": {"sessions": sessions, "ttlMs": lifetimes},
    "sessions.get": {},
    "instance.put": {"instanceId": TEXT, "attempt": st.integers(1, 3), "ttlMs": lifetimes},
    "instance.get": {},
    "trace.add": {"trace": traces},
    "trace.list": {},
    "run.signal": {"eventKey": keys, "signalType": TEXT, "payload": VALUES},
}
steps = st.one_of(
    st.sampled_from([1, 999, MINUTE, HOUR, DAY, 7 * DAY]).map(lambda ms: ["pass", ms]),
    *[
        st.tuples(st.just(type_), st.sampled_from(["a", "B/é"]), st.fixed_dictionaries(fields)).map(list)
        for type_, fields in commands.items()
    ],
)
logs = st.lists(steps, max_size=40)


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
