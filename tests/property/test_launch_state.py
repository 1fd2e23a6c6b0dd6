"""Launch and retry state, sessions, instances and traces against a plain model, over any passing of time."""

from __future__ import annotations

import json
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agents.run.tables import HEADS, INSTANCES, RETRIES, RETRY_PARAMS, SESSIONS, TRACES
from tests.property.json_values import VALUES
from tests.property.launch_model import KEPT_TRACES, LaunchModel
from tests.property.run_model import Refused
from tests.run_lane import DAY, HOUR, MINUTE, SECOND, RunLane
from tests.sealed_sessions import sealed
from tests.small_lane import Reply

RUNS = ("b", "b\0/A")

runs = st.sampled_from(RUNS)
ttls = st.sampled_from([None, 0, MINUTE, MINUTE + 1, 29 * MINUTE, 31 * MINUTE, HOUR, DAY])
sessions = st.lists(st.sampled_from(["main", "audit"]).map(sealed), max_size=2)
fields = st.fixed_dictionaries(
    {},
    optional={
        "params": VALUES | st.integers(109_900, 110_100).map(lambda size: "é" * (size // 2)),
        "paramsRef": VALUES,
        "paramsBytes": st.integers(0, 2**40),
    },
)
traces = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["coordinator", "dynamic_worker"]),
        "phase": st.text(max_size=3),
        "ts": st.integers(0, 3) | st.floats(0, 3),
        "ms": st.integers(0, 9),
    },
    optional={"note": VALUES, "runId": runs},
)


def exactly(value: Any) -> str:
    """Text that tells 1, 1.0 and true apart."""
    return json.dumps(value, sort_keys=True)


def stored_size(params: dict[str, Any]) -> int:
    """Bytes of the record that these fields make."""
    record = {name: params.get(name) for name in ("params", "paramsRef", "paramsBytes")}
    return len(orjson.dumps(record))


class LaunchOverTime(RuleBasedStateMachine):
    """Two runs on one lane; every reply and every stored key is compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = RunLane()
        self.model = LaunchModel()

    def check(self, run: str, expected: Reply | Refused, type_: str, **given: Any) -> None:
        """Send a command and compare its reply."""
        reply = self.lane.send(
            type_, run, **{name: value for name, value in given.items() if value is not None}
        )
        if isinstance(expected, Refused):
            assert reply["ok"] is False, reply
            assert reply["error"]["code"] == expected.code
        else:
            assert exactly(reply) == exactly(expected)

    @rule(run=runs, params=fields, ttl=ttls)
    def put_retry(self, run: str, params: dict[str, Any], ttl: int | None) -> None:
        expected = self.model.put_retry(run, self.lane.now, params, stored_size(params), ttl)
        self.check_params(run, expected, "retry.put", params, ttlMs=ttl)

    @rule(run=runs, params=fields, ttl=ttls, sessions=sessions, sessions_ttl=ttls)
    def put_launch(
        self,
        run: str,
        params: dict[str, Any],
        ttl: int | None,
        sessions: list[Any],
        sessions_ttl: int | None,
    ) -> None:
        expected = self.model.put_launch(
            run, self.lane.now, params, stored_size(params), ttl, sessions, sessions_ttl
        )
        self.check_params(
            run,
            expected,
            "launch.put",
            params,
            retryTtlMs=ttl,
            sessions=sessions,
            dbSessionsTtlMs=sessions_ttl,
        )

    def check_params(
        self, run: str, expected: Reply | Refused, type_: str, params: dict[str, Any], **given: Any
    ) -> None:
        """As `check`, with fields that may be null, which is not the same as left out."""
        given = {name: value for name, value in given.items() if value is not None}
        reply = self.lane.send(type_, run, **params, **given)
        if isinstance(expected, Refused):
            assert reply["ok"] is False, reply
            assert reply["error"]["code"] == expected.code
            if expected.code == "RETRY_STATE_TOO_LARGE":
                assert reply["error"]["bytes"] == stored_size(params) > reply["error"]["maxBytes"] == 110_000
        else:
            assert exactly(reply) == exactly(expected)

    @rule(run=runs, max_attempts=st.sampled_from([0, 1, 1.5, 3, 100]))
    def claim(self, run: str, max_attempts: float) -> None:
        expected = self.model.claim(run, self.lane.now, max_attempts)
        self.check(run, expected, "retry.claim", maxAttempts=max_attempts)

    @rule(run=runs, sessions=sessions, ttl=ttls)
    def put_sessions(self, run: str, sessions: list[Any], ttl: int | None) -> None:
        expected = self.model.put_sessions(run, self.lane.now, sessions, ttl)
        self.check(run, expected, "sessions.put", sessions=sessions, ttlMs=ttl)

    @rule(run=runs, sessions=st.none() | sessions)
    def submit(self, run: str, sessions: list[Any] | None) -> None:
        self.model.submit(run, self.lane.now, sessions)
        self.lane.send("run.submit", run, name="n", sessions=sessions)

    @rule(run=runs)
    def get_sessions(self, run: str) -> None:
        self.check(run, self.model.get_sessions(run, self.lane.now), "sessions.get")

    @rule(
        run=runs,
        instance=st.text(min_size=1, max_size=3),
        attempt=st.none() | st.integers(1, 4),
        ttl=ttls,
    )
    def put_instance(self, run: str, instance: str, attempt: int | None, ttl: int | None) -> None:
        expected = self.model.put_instance(run, self.lane.now, instance, attempt, ttl)
        self.check(run, expected, "instance.put", instanceId=instance, attempt=attempt, ttlMs=ttl)

    @rule(run=runs)
    def get_instance(self, run: str) -> None:
        self.check(run, self.model.get_instance(run, self.lane.now), "instance.get")

    @rule(run=runs, trace=traces)
    def add_trace(self, run: str, trace: dict[str, Any]) -> None:
        self.check(run, self.model.add_trace(run, trace), "trace.add", trace=trace)

    @rule(run=runs, count=st.sampled_from([5, 205]))
    def add_many_traces(self, run: str, count: int) -> None:
        for number in range(count):
            ts = (number * 7) % 11
            self.add_trace(run, {"source": "coordinator", "phase": str(number), "ts": ts, "ms": 0})

    @rule(run=runs)
    def list_traces(self, run: str) -> None:
        expected = self.model.list_traces(run)
        self.check(run, expected, "trace.list")
        status = self.lane.send("run.status", run, trace=1)
        if status["ok"]:
            assert exactly(status["result"]["traces"]) == exactly(expected["result"]["traces"])

    @rule(run=runs)
    def end(self, run: str) -> None:
        self.model.end(run, self.lane.now)
        self.lane.send("run.cancel", run)

    @rule(run=runs)
    def finish(self, run: str) -> None:
        self.model.finish(run, self.lane.now)
        self.lane.send("run.finish", run)

    @rule(ms=st.sampled_from([1, SECOND, MINUTE - 1, MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, DAY]))
    def pass_time(self, ms: int) -> None:
        self.lane.pass_time(ms)
        self.model.pass_time(self.lane.now)

    @invariant()
    def what_is_stored_is_what_is_alive(self) -> None:
        for run in RUNS:
            model, now = self.model.run(run), self.lane.now
            stored = {
                "retry": bool(self.lane.keys(RETRIES, run)),
                "sessions": bool(self.lane.keys(SESSIONS, run)),
                "instance": bool(self.lane.keys(INSTANCES, run)),
            }
            assert stored == {name: model.get(name, now) is not None for name in stored}
            assert bool(self.lane.keys(RETRY_PARAMS, run)) is stored["retry"]
            due = {name: at for (key, name), (at, _) in self.lane.timers.items() if key == run}
            assert {name: due.get(name) for name in stored} == {
                name: model.kept[name].until if there else None for name, there in stored.items()
            }
            assert len(self.lane.keys(TRACES, run)) == min(KEPT_TRACES, len(model.traces))
            assert (self.lane.record(HEADS, run) is not None) is model.known


TestLaunchOverTime = LaunchOverTime.TestCase
TestLaunchOverTime.settings = settings(max_examples=100, stateful_step_count=50)
