"""Calls and child results against a plain model, over any order of commands and any passing of time."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agents.machine import Answer
from agents.run.tables import CALL_RESULTS, CALLS, CHILDREN, HEADS, WAIT_GROUPS, WAITS
from agents.run.waits import of_call, of_child
from tests.property.call_model import Run
from tests.property.run_model import Refused
from tests.property.test_run_machine import exactly
from tests.run_lane import DAY, MINUTE, RunLane, result
from tests.small_lane import Reply

RUNS = ["b", "b\0/A"]
"""One begins with the other and what ends a key's part."""

# Mostly the same run and the same call: what there is to find lies where several meet.
runs = st.sampled_from([RUNS[0]] * 4 + RUNS[1:])
picks = st.sampled_from([0, 0, 0, 0, 0, 1, 2])
"""The newest call, which has no result yet; the one before it, which has one; a third one."""
owners = st.sampled_from(["o", "p"])
leases = st.sampled_from([1000, 1000, 5000, 300_000])
timeouts = st.sampled_from([0, 1000, 1000, 5000, 30_000])
stale = st.sampled_from([False] * 7 + [True])
event_keys = st.sampled_from(["k", "k", "k\0"])
# Few values, so that the same comes again; 1, 1.0 and True to tell apart; one that is larger than an answer keeps.
values = st.sampled_from([None, 1, 1.0, True, {"a": 1, "b": None}, {"b": None, "a": 1.0}, "x" * 3000])
outcomes = st.one_of(
    values.map(lambda value: {"value": value}),
    values.filter(lambda value: value is not None).map(lambda error: {"error": error}),
)


def same(left: Any, right: Any) -> bool:
    """Equality by JSON text, in which 1.0 is made 1."""
    return exactly(left).replace("1.0", "1") == exactly(right).replace("1.0", "1")


class CallsOverTime(RuleBasedStateMachine):
    """Two runs on one lane; every reply, late answer and stored key is compared with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = RunLane()
        self.models = {run: Run() for run in RUNS}
        self.commands = 0
        self.late = 0
        self.remembered: list[tuple[str, Answer, Reply]] = []
        """Answers to writes, with the reply that each of them made."""

    @property
    def command(self) -> str:
        """Id of the command that is being sent."""
        return f"c{self.commands}"

    def check(
        self, run: str, expected: Reply | Refused, type_: str, fields: dict[str, Any], *, write: bool = False
    ) -> None:
        """Send a command and compare its reply; that of a write comes again when the command does."""
        reply = self.lane.send(type_, run, command_id=self.command, **fields)
        if isinstance(expected, Refused):
            assert reply["ok"] is False, reply
            assert reply["error"]["code"] == expected.code
            assert reply["error"].get("fencingNumber") == expected.fencing
        else:
            assert exactly(reply) == exactly(expected)
        if write and self.lane.last_answer is not None:
            self.remembered.append((run, self.lane.last_answer, reply))

    def next(self, run: str) -> Run:
        """The model of a run, for the next command."""
        self.commands += 1
        return self.models[run]

    @rule(run=runs, pick=picks, owner=owners, lease=leases, stale=stale)
    def claim(self, run: str, pick: int, owner: str, lease: int, stale: bool) -> None:
        model = self.next(run)
        call = call_of(model, pick)
        expected = model.claim(self.command, self.lane.now, call, owner, lease, stale)
        fields = {**name(call), "owner": owner, "leaseMs": lease, **by(stale)}
        self.check(run, expected, "call.claim", fields, write=True)

    @rule(run=runs, pick=picks, back=st.integers(-1, 2), lease=leases, stale=stale)
    def renew(self, run: str, pick: int, back: int, lease: int, stale: bool) -> None:
        model = self.next(run)
        call = call_of(model, pick)
        fencing = self.fencing(model, call, back)
        expected = model.renew(self.lane.now, call, fencing, lease, stale)
        fields = {**name(call), "fencingNumber": fencing, "leaseMs": lease, **by(stale)}
        self.check(run, expected, "call.renew", fields, write=True)

    @rule(
        run=runs,
        pick=picks,
        back=st.sampled_from([0, 0, 0, 1, 2, -1]),
        outcome=outcomes,
        release=st.booleans(),
    )
    def publish(self, run: str, pick: int, back: int, outcome: dict[str, Any], release: bool) -> None:
        model = self.next(run)
        call = call_of(model, pick)
        fencing = self.fencing(model, call, back)
        expected = model.publish(self.lane.now, call, fencing, outcome, release, same)
        fields = {**name(call), "fencingNumber": fencing, **outcome}
        fields |= {"onFailure": "release" if release else "keep"}
        self.check(run, expected, "call.publish", fields, write=True)

    @rule(
        run=runs,
        pick=picks,
        timeout=timeouts,
        owner=st.none() | owners | owners,
        lease=leases,
        stale=stale,
        again=st.sampled_from([False, False, True]),
    )
    def await_call(
        self,
        run: str,
        pick: int,
        timeout: int,
        owner: str | None,
        lease: int,
        stale: bool,
        again: bool,
    ) -> None:
        model = self.next(run)
        call = call_of(model, pick)
        expected = model.await_call(self.command, self.lane.now, call, timeout, owner, lease, stale)
        fields = {**name(call), "timeoutMs": timeout, "leaseMs": lease, **by(stale)}
        fields |= {"claim": owner is not None, "owner": owner}
        self.check(run, expected, "call.await", fields)
        if again and isinstance(expected, dict) and expected.get("result", {}).get("status") == "claimed":
            self.check(run, expected, "call.await", fields)

    @rule(run=runs, pick=picks, crowd=st.lists(st.tuples(timeouts, owners, leases), max_size=4))
    def crowd(self, run: str, pick: int, crowd: list[tuple[int, str, int]]) -> None:
        for timeout, owner, lease in crowd:
            self.await_call(run, pick, timeout, owner, lease, False, False)

    @rule(run=runs)
    def debug(self, run: str) -> None:
        model = self.next(run)
        self.check(run, model.debug(self.lane.now), "call.debug", {})

    @rule(run=runs, key=event_keys, data=values, stored_at=st.none() | st.integers(0, 3))
    def set_child(self, run: str, key: str, data: Any, stored_at: int | None) -> None:
        model = self.next(run)
        expected = model.set_child(self.lane.now, key, data, stored_at)
        fields = {"eventKey": f" {key}\n", "data": data, "storedAt": stored_at}
        self.check(run, expected, "child.terminal.set", fields, write=True)

    @rule(run=runs, key=event_keys)
    def get_child(self, run: str, key: str) -> None:
        model = self.next(run)
        self.check(run, model.get_child(key), "child.terminal.get", {"eventKey": key})

    @rule(run=runs, key=event_keys, timeout=timeouts)
    def await_child(self, run: str, key: str, timeout: int) -> None:
        model = self.next(run)
        expected = model.await_child(self.command, self.lane.now, key, timeout)
        self.check(run, expected, "child.terminal.await", {"eventKey": key, "timeoutMs": timeout})

    @rule(run=runs, timeout=st.sampled_from([1000, 30_000]))
    def await_event(self, run: str, timeout: int) -> None:
        model = self.next(run)
        model.await_event(self.command, self.lane.now, timeout)
        self.lane.send("events.list", run, command_id=self.command, afterSeq=model.events, timeoutMs=timeout)

    @rule(run=runs)
    def log(self, run: str) -> None:
        model = self.next(run)
        if self.lane.log(run=run)["ok"]:
            model.event()

    @rule(run=runs)
    def submit(self, run: str) -> None:
        model = self.next(run)
        if not model.submitted and self.lane.send("run.submit", run, name="n")["ok"]:
            model.submitted = True
            model.event()

    @rule(run=runs, chance=st.integers(0, 9))
    def end(self, run: str, chance: int) -> None:
        model = self.next(run)
        if chance == 0 and not model.ended:
            result(self.lane.send("terminal.set", run, status="completed"))
            model.end(self.lane.now)
        elif chance < 5 and model.ended and not model.evicted and model.evict_at != self.lane.now + MINUTE:
            model.evict_at = result(self.lane.send("run.finish", run))["evictsAt"]

    @rule(ms=st.sampled_from([1, 999, 1000, 1000, 1001, 4000, 5000, 30_000, 30_000, MINUTE, DAY]))
    def pass_time(self, ms: int) -> None:
        self.lane.pass_time(ms)
        for model in self.models.values():
            model.pass_time(self.lane.now)

    @invariant()
    def waits_are_answered_once_and_as_the_model_says(self) -> None:
        late = [
            (command, reply)
            for command, reply in self.lane.late[self.late :]
            if "events" not in reply["result"]
        ]
        self.late = len(self.lane.late)
        expected = [answer for model in self.models.values() for answer in model.late]
        for model in self.models.values():
            model.late.clear()
        assert exactly(sorted(late, key=exactly)) == exactly(sorted(map(list, expected), key=exactly))

    @invariant()
    def what_comes_again_gets_the_first_answer(self) -> None:
        for run, answer, reply in self.remembered[-3:] + self.remembered[::7]:
            again = self.lane.recall(answer, run)
            if self.models[run].evicted:
                continue  # The lane forgets the answers of an evicted run.
            if answer.by_reference.get("state"):
                assert again["result"]["state"] is not None
            else:
                assert exactly(again) == exactly(reply)
            kept = {name: value for name, value in answer.body.items() if name not in answer.by_reference}
            assert len(exactly(kept)) < 2048

    @invariant()
    def what_is_stored_is_what_is_needed(self) -> None:
        for run, model in self.models.items():
            stored = {key[1:]: self.lane.record(CALLS, *key) for key in self.lane.keys(CALLS, run)}
            assert stored.keys() == model.calls.keys()
            numbers = [call.number for call in stored.values()]
            assert sorted(numbers) == list(range(1, len(numbers) + 1))
            published = [stored[key].number for key, call in model.calls.items() if call.outcome is not None]
            assert [number for _, number in self.lane.keys(CALL_RESULTS, run)] == sorted(published)
            assert [key for _, key in self.lane.keys(CHILDREN, run)] == sorted(model.children)
            assert len(self.lane.keys(WAITS, run)) == len(model.waits)
            groups = {
                on: self.lane.record(WAIT_GROUPS, run, on) for _, on in self.lane.keys(WAIT_GROUPS, run)
            }
            assert {on: (group.waits, group.claimers) for on, group in groups.items()} == groups_of(model)
            head = self.lane.record(HEADS, run)
            assert (head is None) is (not model.known and not model.waits)
            if head is not None:
                assert (head.waits, head.calls) == (len(model.waits), len(model.calls))
            timers = {name: due for (key, name), (due, _) in self.lane.timers.items() if key == run}
            leases = {
                f"lease:{stored[key].number}": call.expires
                for key, call in model.calls.items()
                if any(wait.of == key and wait.owner for wait in model.waits)
            }
            assert {name: due for name, due in timers.items() if name.startswith("lease:")} == leases
            dues = [due for name, due in timers.items() if name.startswith("wait:")]
            assert sorted(dues) == sorted(wait.due for wait in model.waits)

    @staticmethod
    def fencing(model: Run, call: tuple[str, str], back: int) -> int:
        """A fencing number near the newest of a call."""
        return max(1, model.calls[call].fencing - back if call in model.calls else 1)


def call_of(model: Run, pick: int) -> tuple[str, str]:
    """A call by `picks`; their names begin with each other and hold what ends a key's part."""
    if pick == 2:
        return ("t", "\0h")
    published = sum(call.outcome is not None for (tool, _), call in model.calls.items() if tool == "t\0")
    return ("t\0", f"h{published - pick}")


def name(call: tuple[str, str]) -> dict[str, Any]:
    """The fields that name a call."""
    return {"toolId": call[0], "inputHash": call[1]}


def by(stale: bool) -> dict[str, Any]:
    """The fields of an executor whose attempt is not the run's."""
    return {"attempt": 2} if stale else {}


def groups_of(model: Run) -> dict[str, tuple[int, int]]:
    """How many wait on each subject, and how many of them to claim."""
    groups: dict[str, tuple[int, int]] = {}
    for wait in model.waits:
        if isinstance(wait.of, tuple):
            on = of_call(*wait.of)
        else:
            on = of_child(wait.of) if wait.of is not None else '["events"]'
        waits, claimers = groups.get(on, (0, 0))
        groups[on] = (waits + 1, claimers + bool(wait.owner))
    return groups


TestCallsOverTime = CallsOverTime.TestCase
TestCallsOverTime.settings = settings(max_examples=100, stateful_step_count=60)
