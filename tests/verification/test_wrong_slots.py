"""As `test_wrong_histories`: what runs have beside their events, and the replies about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents.run import tables
from streams.lane_tables import ANSWERS
from streams.verify.findings import Place
from streams.verify.verifier import Verifier
from tests.sealed_sessions import sealed
from tests.verification.breaking import (
    Break,
    Breaks,
    body_of,
    last,
    name_of,
    of_run,
    report_on,
    require_found,
    says,
    state_of,
    with_fields,
)
from tests.verification.made_deployment import COMMANDS, MINUTE, Deployment
from tests.verification.made_topics import CHANGELOG, At, Made, Topics

SLOT_BREAKS = Breaks()
breaks = SLOT_BREAKS.of

LARGE = "x" * 1500
"""No answer keeps it as it is."""


@pytest.fixture(scope="module")
def right() -> Deployment:
    """Calls, children's results, signals, launch state and traces as they should be."""
    made = Deployment()

    def calls(run: str, type_: str, command_id: str, *, asks: bool = False, **fields: Any) -> None:
        made.send(type_, run, command_id=command_id, asks=asks, toolId="t", inputHash="h", **fields)

    for run, asks in (("calls", False), ("asked", True)):
        calls(run, "call.claim", f"{run}-1", asks=asks, owner="a", leaseMs=1000)
        calls(run, "call.await", f"{run}-wait", asks=True, timeoutMs=30_000)
        made.settle()
        made.pass_time(2000)
        calls(run, "call.claim", f"{run}-2", asks=asks, owner="b")
        calls(run, "call.claim", f"{run}-pending", asks=asks, owner="c")
        calls(run, "call.renew", f"{run}-renew", asks=asks, fencingNumber=2)
        calls(run, "call.publish", f"{run}-late", asks=asks, fencingNumber=1, value="old")
        calls(run, "call.publish", f"{run}-publish", asks=asks, fencingNumber=2, value=LARGE)
        calls(run, "call.publish", f"{run}-again", asks=asks, fencingNumber=2, value=LARGE)
        calls(run, "call.claim", f"{run}-hit", asks=asks, owner="d")
    calls("released", "call.claim", "released-1", owner="a")
    calls("released", "call.publish", "released-failed", fencingNumber=1, error="e", onFailure="release")
    calls("released", "call.claim", "released-2", owner="b")

    made.send("child.terminal.set", "child", command_id="child-1", eventKey="k", data=1)
    made.settle()
    made.send("child.terminal.get", "child", command_id="child-get", asks=True, eventKey="k")
    made.send("child.terminal.set", "child", command_id="child-2", asks=True, eventKey="k", data=LARGE)
    made.send(
        "child.terminal.await", "child", command_id="child-await", asks=True, eventKey="s", timeoutMs=30_000
    )
    made.send("child.terminal.get", "child", command_id="child-none", asks=True, eventKey="s")
    made.send("run.signal", "child", command_id="child-signal", eventKey="s", payload="signalled")

    made.send("launch.put", "launch", command_id="launch-put", params=LARGE, sessions=[sealed()])
    made.send("sessions.get", "launch", command_id="launch-sessions", asks=True)
    made.send("instance.put", "launch", command_id="launch-instance", instanceId="i", attempt=2)
    made.send("instance.get", "launch", command_id="launch-get", asks=True)
    for attempt in (1, 2, 3):
        made.send("retry.claim", "launch", command_id=f"launch-{attempt}", asks=attempt == 2, maxAttempts=3)
    made.send("sessions.put", "expired", command_id="expired-put", sessions=[sealed()], ttlMs=MINUTE)
    made.settle()
    made.pass_time(2 * MINUTE)
    made.send("sessions.get", "expired", command_id="expired-get", asks=True)

    for number in range(1, 203):
        trace = {"source": "coordinator", "phase": "p", "ts": number, "ms": 1}
        made.send("trace.add", "traced", command_id=f"trace-{number}", asks=number == 7, trace=trace)
        if number == 100:
            made.settle()
    made.settle()
    made.pass_time(MINUTE)
    return made


def test_the_history_is_right_before_it_is_broken(right: Deployment) -> None:
    report = report_on(right, right.topics)
    assert not report.violations
    checked = {rule.name: count.checked for rule, count in report.rules.items()}
    # Published calls, results of children, retry state, sessions twice, instance.
    assert checked["stored"] == 2 + 2 + 1 + 2 + 1
    assert checked["fencing"] == 2 * 7 + 3 + 2  # Of commands, and of replies.
    assert report.commands["refused"] == 2
    assert sum(count.not_checkable for count in report.rules.values()) == 0


def test_a_verification_of_one_run_sees_what_it_has(right: Deployment) -> None:
    topics = right.topics.copy()
    a_signal_is_not_stored(topics)
    for run, stored, violations in (("calls", 1, 0), ("launch", 3, 0), ("child", 2, 1)):
        report = Verifier(topics, right.repeats, only=run.encode()).run()
        checked = {rule.name: count.checked for rule, count in report.rules.items()}
        assert (checked["stored"], report.violations) == (stored, violations)


@pytest.mark.parametrize(("rule", "break_it"), SLOT_BREAKS, ids=name_of)
def test_what_is_broken_is_found_by_its_rule_alone(right: Deployment, rule: str, break_it: Break) -> None:
    require_found(right, rule, break_it)


def answer_to(run: str, command_id: str) -> Callable[[Made], bool]:
    """Whether a record is what the changelog remembers of a command."""
    return state_of(ANSWERS.key("run", run, command_id))


def put_answer(topics: Topics, run: str, command_id: str, **fields: Any) -> Place:
    """Let the changelog remember other fields of an answer; returns the place of the command."""
    at, answer = topics.find(CHANGELOG, answer_to(run, command_id))
    topics.put(at, with_fields(answer, body={**body_of(answer)["body"], **fields}))
    where, command = topics.find(COMMANDS, of_run(run, commandId=command_id))
    return Place(*where, command.at)


def put_reply(topics: Topics, command_id: str, **fields: Any) -> Place:
    """Let a reply have other fields in its result."""
    at, reply = topics.find("replies", says(commandId=command_id))
    return topics.put(at, with_fields(reply, result={**body_of(reply)["result"], **fields}))


def put_state(topics: Topics, key: bytes, **fields: Any) -> Place:
    """Let a stored record have other fields."""
    at, record = last(topics, CHANGELOG, state_of(key))
    return topics.put(at, with_fields(record, **fields))


def delete_state(topics: Topics, key: bytes) -> tuple[At, Made]:
    """Delete a stored record."""
    at, record = last(topics, CHANGELOG, state_of(key))
    topics.append(at, record, own_value=None)
    return at, record


def place_of(topics: Topics, run: str, command_id: str) -> Place:
    """Where a command is."""
    at, command = topics.find(COMMANDS, of_run(run, commandId=command_id))
    return Place(*at, command.at)


@breaks("stored")
def a_childs_result_is_stored_otherwise(topics: Topics) -> Place:
    return put_state(topics, tables.CHILDREN.key("child", "k"), data="another")


@breaks("stored")
def a_childs_result_is_the_earlier_one(topics: Topics) -> Place:
    key = tables.CHILDREN.key("child", "k")
    _, first = topics.find(CHANGELOG, state_of(key))
    at, _ = last(topics, CHANGELOG, state_of(key))
    return topics.append(at, first)


@breaks("stored")
def a_signal_is_not_stored(topics: Topics) -> Place:
    delete_state(topics, tables.CHILDREN.key("child", "s"))
    return place_of(topics, "child", "child-signal")


@breaks("stored")
def a_result_is_stored_that_nobody_set(topics: Topics) -> Place:
    at, record = topics.find(CHANGELOG, state_of(tables.CHILDREN.key("child", "s")))
    key = tables.CHILDREN.key("child", "unknown")
    return topics.append(at, with_fields(replace(record, own_key=key), eventKey="unknown"))


@breaks("stored")
def an_outcome_is_stored_otherwise(topics: Topics) -> Place:
    return put_state(topics, tables.CALL_RESULTS.key("calls", 1), value="another")


@breaks("stored")
def an_outcome_is_gone(topics: Topics) -> Place:
    delete_state(topics, tables.CALL_RESULTS.key("calls", 1))
    return place_of(topics, "calls", "calls-publish")


@breaks("stored")
def a_published_call_is_open_again(topics: Topics) -> Place:
    at, record = last(topics, CHANGELOG, state_of(tables.CALLS.key("calls", "t", "h")))
    body = {name: value for name, value in body_of(record).items() if name != "ok"}
    topics.append(at, replace(record, own_value=json.dumps(body).encode()))
    return place_of(topics, "calls", "calls-publish")


@breaks("stored")
def parameters_are_stored_otherwise(topics: Topics) -> Place:
    return put_state(topics, tables.RETRY_PARAMS.key("launch"), params="another")


@breaks("stored")
def sessions_are_stored_otherwise(topics: Topics) -> Place:
    return put_state(topics, tables.SESSIONS.key("launch"), sessions=[sealed("other")])


@breaks("stored")
def another_instance_is_stored(topics: Topics) -> Place:
    return put_state(topics, tables.INSTANCES.key("launch"), instance_id="another")


@breaks("fencing")
def a_fencing_number_is_given_again(topics: Topics) -> Place:
    return put_answer(topics, "released", "released-2", fencingNumber=1)


@breaks("fencing")
def a_published_call_is_given_again(topics: Topics) -> Place:
    at, answer = topics.find(CHANGELOG, answer_to("calls", "calls-hit"))
    claimed = {"status": "claimed", "fencingNumber": 3, "leaseExpiresAt": 1}
    topics.put(at, with_fields(answer, body=claimed, by_reference={}))
    return place_of(topics, "calls", "calls-hit")


@breaks("fencing")
def a_late_result_is_accepted(topics: Topics) -> Place:
    at, answer = topics.find(CHANGELOG, answer_to("calls", "calls-late"))
    topics.put(at, with_fields(answer, ok=True, body={"published": False, "answered": 0}))
    # It is taken for a release, so that nothing is stored.
    where, command = topics.find(COMMANDS, of_run("calls", commandId="calls-late"))
    body = {**body_of(command), "value": None, "error": "e", "onFailure": "release"}
    return topics.put(where, replace(command, own_value=json.dumps(body).encode()))


@breaks("fencing")
def a_second_result_is_accepted(topics: Topics) -> Place:
    at, command = topics.find(COMMANDS, of_run("calls", commandId="calls-again"))
    return topics.put(at, with_fields(command, value="another"))


@breaks("fencing")
def an_older_fencing_number_is_stored(topics: Topics) -> Place:
    return put_state(topics, tables.CALLS.key("released", "t", "h"), fencing_number=1)


@breaks("fencing")
def two_are_told_the_same_fencing_number(topics: Topics) -> Place:
    # By a question, of whose answer the changelog remembers nothing.
    at, reply = topics.find("replies", says(commandId="asked-wait"))
    claimed = {"status": "claimed", "fencingNumber": 2, "leaseExpiresAt": 1}
    place = topics.put(at, with_fields(reply, result=claimed))
    other_at, other = topics.find("replies", says(commandId="asked-2"))
    return max(place, Place(*other_at, other.at))


@breaks("count")
def an_attempt_is_given_twice(topics: Topics) -> Place:
    return put_answer(topics, "launch", "launch-2", attempts=1)


@breaks("count")
def an_attempt_is_left_out(topics: Topics) -> Place:
    return put_answer(topics, "launch", "launch-3", attempts=4)


@breaks("count")
def fewer_attempts_are_stored_than_were_given(topics: Topics) -> Place:
    return put_state(topics, tables.RETRIES.key("launch"), attempts=2)


@breaks("count")
def a_trace_is_counted_wrongly(topics: Topics) -> Place:
    return put_answer(topics, "traced", "trace-9", count=8)


@breaks("count")
def a_trace_too_many_is_counted(topics: Topics) -> Place:
    key = tables.HEADS.key("traced")
    at, trace = last(topics, CHANGELOG, state_of(tables.TRACES.key("traced", 202)))
    topics.append(at, replace(trace, own_key=tables.TRACES.key("traced", 203)))
    topics.append(at, replace(trace, own_key=tables.TRACES.key("traced", 3)), own_value=None)
    return put_state(topics, key, traces=203)


@breaks("count")
def a_trace_is_not_stored(topics: Topics) -> Place:
    delete_state(topics, tables.TRACES.key("traced", 100))
    at, head = last(topics, CHANGELOG, state_of(tables.HEADS.key("traced")))
    return Place(*at, head.at)


@breaks("count")
def an_old_trace_is_still_stored(topics: Topics) -> Place:
    at, trace = topics.find(CHANGELOG, state_of(tables.TRACES.key("traced", 1)))
    return topics.append(at, trace)


@breaks("count")
def a_call_is_not_counted(topics: Topics) -> Place:
    return put_state(topics, tables.HEADS.key("released"), calls=0)


@breaks("reply")
def a_claim_is_told_another_fencing_number(topics: Topics) -> Place:
    return put_reply(topics, "asked-2", fencingNumber=3)


@breaks("reply")
def a_publisher_is_told_another_number_of_waiters(topics: Topics) -> Place:
    return put_reply(topics, "asked-publish", answered=0)


@breaks("reply")
def a_claim_shows_another_outcome(topics: Topics) -> Place:
    return put_reply(topics, "asked-hit", value="another")


@breaks("reply")
def a_waiter_is_told_another_outcome(topics: Topics) -> Place:
    return put_reply(topics, "calls-wait", value="another")


@breaks("reply")
def a_result_is_shown_before_it_was_set(topics: Topics) -> Place:
    return put_reply(topics, "child-get", state={"eventKey": "k", "data": LARGE, "storedAt": 1})


@breaks("reply")
def no_result_is_shown_when_there_is_one(topics: Topics) -> Place:
    return put_reply(topics, "child-get", state=None)


@breaks("reply")
def a_waiter_is_told_another_result(topics: Topics) -> Place:
    return put_reply(topics, "child-await", state={"eventKey": "s", "data": "another", "storedAt": 1})


@breaks("reply")
def a_result_is_shown_when_there_is_none(topics: Topics) -> Place:
    return put_reply(topics, "child-none", state={"eventKey": "s", "data": "signalled", "storedAt": 1})


@breaks("reply")
def other_sessions_are_shown(topics: Topics) -> Place:
    return put_reply(topics, "launch-sessions", sessions=[sealed("other")])


@breaks("reply")
def another_instance_is_shown(topics: Topics) -> Place:
    return put_reply(
        topics, "launch-get", instance={"instanceId": "another", "attempt": 2, "ttlMs": 3_600_000}
    )


@breaks("reply")
def an_attempt_gets_other_parameters(topics: Topics) -> Place:
    return put_reply(topics, "launch-2", params="another")


@breaks("reply")
def a_count_is_told_that_is_not_remembered(topics: Topics) -> Place:
    return put_reply(topics, "trace-7", count=6)
