"""The run machine against a plain model, over any order of commands and any passing of time."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.run.tables import EVENTS, HEADS, TERMINALS, WAITS
from tests.property.run_model import END_FIELDS, KEPT, Refused, RunsModel
from tests.run_lane import DAY, HOUR, MINUTE, RunLane
from tests.small_lane import Reply

RUNS = {"b": "b", "b\0/A": "b-a"}
"""Run id -> its instance id. One begins with the other and what ends a key's part."""

runs = st.sampled_from(sorted(RUNS))
stale = st.sampled_from([False, False, False, True])

events = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("log"), "line": st.text(max_size=5)}, optional={"ts": st.integers(0, 9)}
    ),
    st.fixed_dictionaries(
        {"type": st.just("status"), "status": st.text(max_size=3)},
        optional={"logs": st.lists(st.text(max_size=3), max_size=2)},
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("progress"),
            "status": st.text(max_size=3),
            "logs": st.none() | st.lists(st.text(max_size=3), max_size=2),
            "activeNodeId": st.none() | st.text(max_size=3),
            "activeArtifactTableNamespace": st.none() | st.text(max_size=3),
            "updatedAt": st.none() | st.integers(),
        }
    ).filter(lambda event: event["updatedAt"] is None or abs(event["updatedAt"]) < 2**63),
)

# Few values, so that the same end comes again often; 1, 1.0 and True to tell apart.
ends = st.fixed_dictionaries(
    {"status": st.sampled_from(["completed", "failed", "cancelled"])},
    optional={
        "result": st.sampled_from([None, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": 1, "b": None}]),
        "error": st.sampled_from([None, "e"]),
        "totalRows": st.sampled_from([None, 1, 1.0, True]),
        "playName": st.sampled_from([None, "p"]),
        "completedAt": st.integers(0, 3),
    },
)


def exactly(value: Any) -> str:
    """Text that tells 1, 1.0 and true apart, as Python's equality does not."""
    return json.dumps(value, sort_keys=True)


def same_end(stored: dict[str, Any], end: dict[str, Any]) -> bool:
    """Equality of ends by their JSON text, in which 1.0 is made 1."""
    texts = [exactly({name: of.get(name) for name in END_FIELDS}).replace("1.0", "1") for of in (stored, end)]
    return texts[0] == texts[1]


class RunsOverTime(RuleBasedStateMachine):
    """Two runs on one lane; every reply, late answer, output and stored key is compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = RunLane()
        self.model = RunsModel()
        self.commands = 0
        self.late = 0
        self.outputs = 0
        self.decoded: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.lives: dict[str, list[list[dict[str, Any]]]] = {run: [] for run in RUNS}
        """The events of each life of a run that has been forgotten."""

    def check(self, run: str, expected: Reply | Refused, type_: str, **fields: Any) -> None:
        """Send a command and compare its reply."""
        reply = self.lane.send(type_, run, command_id=self.command_id, **fields)
        if isinstance(expected, Refused):
            assert reply["ok"] is False, reply
            assert reply["error"]["code"] == expected.code
            assert exactly(reply["error"].get("terminal")) == exactly(expected.terminal)
        else:
            assert exactly(reply) == exactly(expected)

    def emitted(self, topic: str, run: str) -> list[dict[str, Any]]:
        """What was emitted so far; each output is decoded once."""
        for to, key, value in self.lane.outputs[self.outputs :]:
            self.decoded.setdefault((to, key), []).append(json.loads(value))
        self.outputs = len(self.lane.outputs)
        return self.decoded.get((topic, run), [])

    @property
    def command_id(self) -> str:
        return f"c{self.commands}"

    def next_id(self) -> str:
        self.commands += 1
        return self.command_id

    @rule(run=runs)
    def submit(self, run: str) -> None:
        expected = self.model.submit(run, self.next_id(), self.lane.now, RUNS[run])
        self.check(run, expected, "run.submit", name="n")

    @rule(run=runs, event=events, stale=stale)
    def append(self, run: str, event: dict[str, Any], stale: bool) -> None:
        expected = self.model.append(run, self.next_id(), self.lane.now, event, stale=stale)
        self.check(run, expected, "events.append", event=event, **({"attempt": 2} if stale else {}))

    @precondition(lambda self: self.commands < 600)
    @rule(run=runs, count=st.sampled_from([20, 505]))
    def append_many(self, run: str, count: int) -> None:
        for _ in range(count):
            self.append(run, {"type": "log", "line": ""}, False)

    @rule(run=runs, end=ends, stale=stale)
    def set_terminal(self, run: str, end: dict[str, Any], stale: bool) -> None:
        expected = self.model.set_terminal(run, self.next_id(), self.lane.now, end, same_end, stale=stale)
        self.check(run, expected, "terminal.set", **end, **({"instanceId": "other"} if stale else {}))

    @rule(run=runs, reason=st.sampled_from([None, "e"]))
    def cancel(self, run: str, reason: str | None) -> None:
        expected = self.model.cancel(run, self.next_id(), self.lane.now, reason)
        self.check(run, expected, "run.cancel", reason=reason)

    @rule(run=runs)
    def finish(self, run: str) -> None:
        self.next_id()
        self.check(run, self.model.finish(run, self.lane.now), "run.finish")

    @rule(
        run=runs,
        back=st.integers(-2, 3) | st.sampled_from([480, 510]),
        limit=st.integers(1, 4) | st.just(500),
        timeout=st.sampled_from([0, 1, 900, 30_000]),
    )
    def list_events(self, run: str, back: int, limit: int, timeout: int) -> None:
        after = max(0, len(self.model.run(run).events) - back)
        expected = self.model.list(run, self.next_id(), self.lane.now, after, limit, timeout)
        self.check(run, expected, "events.list", afterSeq=after, limit=limit, timeoutMs=timeout)

    @rule(run=runs, wait=st.sampled_from([0, 1, 900, 2000]))
    def status(self, run: str, wait: int) -> None:
        expected = self.model.state(run, self.next_id(), self.lane.now, wait)
        self.check(run, expected, "run.status", waitMs=wait)

    @rule(run=runs)
    def get_terminal(self, run: str) -> None:
        self.next_id()
        self.check(run, self.model.get_terminal(run), "terminal.get")

    @rule(ms=st.sampled_from([1, 900, 2000, 30_000, MINUTE, HOUR, DAY - 1, DAY, 7 * DAY]))
    def pass_time(self, ms: int) -> None:
        before = {run: model.events for run, model in self.model.runs.items()}
        self.lane.pass_time(ms)
        self.model.pass_time(self.lane.now)
        for run in before.keys() - self.model.runs.keys():
            self.lives[run].append(before[run])

    @invariant()
    def waits_are_answered_once_and_as_the_model_says(self) -> None:
        late = self.lane.late[self.late :]
        self.late = len(self.lane.late)
        answered = dict(late)
        assert len(answered) == len(late)
        assert exactly(answered) == exactly(self.model.take_late())

    @invariant()
    def the_events_of_a_life_are_dense_and_end_with_the_terminal_event(self) -> None:
        for run in RUNS:
            expected = [event for life in self.lives[run] for event in life] + self.model.run(run).events
            assert exactly(self.emitted("run-events", run)) == exactly(expected)
            for life in [*self.lives[run], self.model.run(run).events]:
                assert [event["seq"] for event in life] == list(range(1, len(life) + 1))
                assert all(event["type"] != "terminal" for event in life[:-1])

    @invariant()
    def terminal_states_are_the_terminal_events(self) -> None:
        for run in RUNS:
            ends = [event for event in self.emitted("run-events", run) if event["type"] == "terminal"]
            for state, event in zip(self.emitted("run-terminals", run), ends, strict=True):
                as_event = {**state, "type": "terminal", "ts": state["completedAt"]}
                assert exactly(as_event) == exactly({**event, "completedAt": event["ts"]})

    @invariant()
    def a_run_is_dispatched_once_per_submit_that_counts(self) -> None:
        for run in RUNS:
            submits = [
                event["commandId"]
                for life in [*self.lives[run], self.model.run(run).events]
                for event in life
                if event["type"] == "status" and event["status"] == "running"
            ]
            assert [sent["commandId"] for sent in self.emitted("run-dispatch", run)] == submits

    @invariant()
    def what_is_stored_is_what_is_needed(self) -> None:
        for run in RUNS:
            model = self.model.run(run)
            events = 0 if model.evicted else min(KEPT, len(model.events))
            latest = len(model.events)
            kept = [(run, seq) for seq in range(latest - events + 1, latest + 1)]
            assert self.lane.keys(EVENTS, run) == kept
            assert bool(self.lane.keys(TERMINALS, run)) is (model.terminal is not None)
            assert len(self.lane.keys(WAITS, run)) == len(model.waits)
            head = self.lane.record(HEADS, run)
            assert (head is None) is (model.status is None and not model.waits)
            if head is not None:
                assert (head.status, head.latest_seq, head.waits) == (model.status, latest, len(model.waits))
            timers = {name: due for (key, name), (due, _) in self.lane.timers.items() if key == run}
            wanted = {"evict": model.evict_at, "forget": model.forget_at}
            assert {name: timers.get(name) for name in wanted} == wanted
            assert sorted(due for name, due in timers.items() if name.startswith("wait:")) == sorted(
                wait.due for wait in model.waits
            )


TestRunsOverTime = RunsOverTime.TestCase
TestRunsOverTime.settings = settings(max_examples=100, stateful_step_count=50)
