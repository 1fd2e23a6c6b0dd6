"""Whatever clients do, however far each topic can be read, and whatever retention and compaction have removed: what the
lanes commit is never reported."""

from __future__ import annotations

from typing import Any

from hypothesis import given, note
from hypothesis import strategies as st

from streams.verify.report import Report
from streams.verify.verifier import Verifier
from tests.verification.made_commands import commands
from tests.verification.made_deployment import (
    COMMANDS,
    DAY,
    HOUR,
    MINUTE,
    PARTITIONS,
    SECOND,
    Deployment,
)
from tests.verification.made_topics import CHANGELOG, At, Topics

TOO_LONG, TOO_LARGE = b"too long", b"too large"
"""Stand for what would take too much room in an example."""

RUNS = ("a", "b", "c/é", "a\0b", "d\1")

sends = st.fixed_dictionaries(
    {
        "do": st.just("send"),
        "command": commands(),
        "run": st.sampled_from(RUNS),
        "again": st.integers(-12, 3),
        "asks": st.booleans(),
        "misplaced": st.sampled_from([False, False, False, False, True]),
    }
)
bad = st.fixed_dictionaries(
    {
        "do": st.just("raw"),
        "key": st.sampled_from([None, b"", b"a", b"\xff", TOO_LONG]),
        "value": st.sampled_from(
            [None, b"", b"[]", b'{"type":"run.cancel","commandId":"i","runId":"other"}', TOO_LARGE]
        ),
        "headers": st.sampled_from([(), (("reply-partition", b"1"),), (("runlane.x", b"1"), ("own", None))]),
        "asks": st.booleans(),
        "partition": st.integers(0, PARTITIONS - 1),
    }
)
works = st.fixed_dictionaries(
    {
        "do": st.just("work"),
        "partition": st.integers(0, PARTITIONS - 1),
        "most": st.sampled_from([1, 2, 5, 100]),
    }
)
passing = st.fixed_dictionaries(
    {"do": st.just("pass"), "ms": st.sampled_from([1, SECOND, MINUTE, HOUR, 13 * HOUR, DAY, 8 * DAY])}
)
plays = st.lists(st.one_of(sends, sends, sends, bad, works, works, passing), max_size=60)
deployments = st.builds(
    Deployment, repeat_limit=st.sampled_from([2, 5, 1000]), repeat_ms=st.sampled_from([HOUR, DAY])
)


def play(deployment: Deployment, steps: list[dict[str, Any]], *, prompt: bool = False) -> None:
    """Let a deployment live through the steps. `prompt`: the lanes keep up before much time passes."""
    sent: list[tuple[str, str]] = []
    for step in steps:
        if step["do"] == "work":
            deployment.work(step["partition"], step["most"])
        elif step["do"] == "pass":
            if prompt and step["ms"] > HOUR:
                deployment.settle()
            deployment.pass_time(step["ms"])
        elif step["do"] == "raw":
            headers = (*step["headers"], *(deployment.address() if step["asks"] else ()))
            key = b"x" * 600 if step["key"] == TOO_LONG else step["key"]
            value = b"x" * 70_000 if step["value"] == TOO_LARGE else step["value"]
            deployment.send_raw(key, value, headers, step["partition"])
        else:
            run, command_id = step["run"], None
            type_, fields = step["command"]
            if sent and step["again"] > 0:
                run, command_id = sent[-min(step["again"], len(sent))]
            command_id = deployment.send(
                type_,
                run,
                command_id=command_id,
                asks=step["asks"],
                misplaced=step["misplaced"],
                **fields,
            )
            sent.append((run, command_id))


def verify(deployment: Deployment, topics: Topics) -> Report:
    """The report on topics, which must be clean."""
    report = Verifier(topics, deployment.repeats).run()
    found = [str(violation) for count in report.rules.values() for violation in count.shown]
    for violation in found:
        note(violation)
    assert not found
    return report


@given(deployments, plays)
def test_everything_that_was_done_is_right_and_accounted_for(
    deployment: Deployment, steps: list[dict[str, Any]]
) -> None:
    play(deployment, steps)
    topics = deployment.settle()
    report = verify(deployment, topics)
    commands = sum(len(topics.logs[COMMANDS, partition]) for partition in range(PARTITIONS))
    assert sum(report.commands.values()) == commands
    assert report.commands["pending"] == report.commands["lost"] == 0


@given(deployments, plays, st.data())
def test_a_deployment_at_work_is_right_wherever_each_topic_is_cut(
    deployment: Deployment, steps: list[dict[str, Any]], data: st.DataObject
) -> None:
    play(deployment, steps)
    topics = deployment.topics.copy()
    moment = st.integers(0, deployment.steps)
    states = [data.draw(moment) for _ in range(PARTITIONS)]
    outputs = data.draw(st.integers(max(states), deployment.steps))
    later: dict[At, int] = {}

    def seen_at(at: At) -> float:
        topic, partition = at
        if topic == CHANGELOG:
            return states[partition]
        # Outputs at any moments after all changelogs, commands after all outputs.
        if topic == COMMANDS:
            return deployment.steps
        return later.setdefault(at, data.draw(st.integers(outputs, deployment.steps)))

    topics.seen_at = seen_at
    verify(deployment, topics)


@given(deployments, plays, st.data())
def test_what_retention_has_removed_is_not_missed(
    deployment: Deployment, steps: list[dict[str, Any]], data: st.DataObject
) -> None:
    # How far a lane lagged behind before the logs begin is not known: it is taken to be less than a day.
    play(deployment, steps, prompt=True)
    topics = deployment.settle().copy()
    for at in sorted(topics.logs):
        end = topics.logs[at][-1].at + 1
        if at[0] not in (CHANGELOG, "run-terminals") and data.draw(st.booleans()):
            topics.delete_before(at, data.draw(st.integers(0, end)))
    verify(deployment, topics)


@given(deployments, plays, st.data())
def test_compaction_changes_nothing(
    deployment: Deployment, steps: list[dict[str, Any]], data: st.DataObject
) -> None:
    play(deployment, steps)
    topics = deployment.settle().copy()
    for at in sorted(topics.logs):
        if at[0] in (CHANGELOG, "run-terminals"):
            offsets = [record.at for record in topics.logs[at]]
            topics.compact(at, keep=data.draw(st.sets(st.sampled_from(offsets))))
    verify(deployment, topics)
