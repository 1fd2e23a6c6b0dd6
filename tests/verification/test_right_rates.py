"""Whatever clients ask of rate buckets, and whatever of it is gone: what the lanes commit is never reported.

Clients end leases that they really got, late and twice; limits change; blocks run out; clocks jump. As in
`test_right_histories`, with time passing in steps from 1 ms to a week.
"""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from schemas.topics import REPLIES
from tests.verification.made_deployment import DAY, HOUR, MINUTE, PARTITIONS, RATES, SECOND, Deployment
from tests.verification.made_topics import CHANGELOG, At, Topics
from tests.verification.test_right_histories import verify

BUCKETS = ("a", "b\0")
KINDS = ("window", "sliding", "bucket")

rules = st.lists(
    st.fixed_dictionaries(
        {
            "ruleId": st.sampled_from(["r", "s"]),
            "kind": st.sampled_from(KINDS),
            "windowMs": st.sampled_from([1, 900, 60_000, 40 * DAY, 0]),
            "requestsPerWindow": st.sampled_from([3, 3, 3, 8, 10**9]),
            "maxConcurrency": st.sampled_from([None, None, 2, 5]),
        }
    ),
    max_size=2,
)
asks = st.fixed_dictionaries(
    {
        "do": st.sampled_from(["rate.acquire", "rate.acquire", "rate.lease"]),
        "bucket": st.sampled_from(BUCKETS),
        "rules": st.one_of(st.none(), rules, rules),
        "requested": st.sampled_from([1, 2, 3, 9]),
        "timeoutMs": st.sampled_from([0, 0, 900, 20_000]),
        "leaseMs": st.sampled_from([1000, 20_000, None]),
        "runId": st.sampled_from([None, "x"]),
        "again": st.integers(-12, 3),
    }
)
ends = st.fixed_dictionaries(
    {
        "do": st.sampled_from(["rate.settle", "rate.settle", "rate.release", "rate.renew", "rate.renew"]),
        "of": st.integers(0, 8),
        "used": st.sampled_from([0, 1, 2, 20]),
    }
)
others = st.fixed_dictionaries(
    {
        "do": st.sampled_from(["rate.penalize", "rate.rules.put", "rate.peek"]),
        "bucket": st.sampled_from(BUCKETS),
        "rules": rules,
        "cooldownMs": st.sampled_from([0, 900]),
    }
)
works = st.fixed_dictionaries({"do": st.just("work"), "most": st.sampled_from([1, 2, 100, 100])})
passing = st.fixed_dictionaries(
    {
        "do": st.just("pass"),
        "ms": st.sampled_from([0, 1, 450, SECOND, 20 * SECOND, MINUTE, HOUR, 13 * HOUR, DAY, 8 * DAY]),
    }
)
jumps = st.fixed_dictionaries({"do": st.just("jump"), "ms": st.sampled_from([-HOUR, -SECOND, MINUTE])})
plays = st.lists(st.one_of(asks, asks, asks, ends, ends, others, works, works, passing, jumps), max_size=60)
deployments = st.builds(
    Deployment, repeat_limit=st.sampled_from([2, 5, 1000]), repeat_ms=st.sampled_from([HOUR, DAY])
)


def play(deployment: Deployment, steps: list[dict[str, Any]], *, prompt: bool = False) -> Topics:
    """Let a deployment live through the steps, and do all there is. `prompt`: see `test_right_histories.play`."""
    sent: list[tuple[str, str, str, dict[str, Any]]] = []
    for step in steps:
        fields = {name: value for name, value in step.items() if name not in ("do", "bucket", "of", "again")}
        if step["do"] == "work":
            for partition in range(PARTITIONS):
                deployment.work(partition, step["most"])
        elif step["do"] == "pass":
            if prompt and step["ms"] > HOUR:
                deployment.settle()
            deployment.pass_time(step["ms"])
        elif step["do"] == "jump":
            deployment.now += step["ms"]
        elif "of" in step:
            _end_a_grant(deployment, step["do"], step["of"], step["used"])
        else:
            type_, bucket, command_id = step["do"], step["bucket"], None
            if sent and step.get("again", 0) > 0:
                type_, bucket, command_id, fields = sent[-min(step["again"], len(sent))]
            command_id = deployment.send(type_, bucket, command_id=command_id, asks=True, **fields)
            sent.append((type_, bucket, command_id, fields))
    return deployment.settle()


def _end_a_grant(deployment: Deployment, type_: str, which: int, used: int) -> None:
    """Release, settle or renew one of the newest grants that clients know of."""
    granted = [
        (record.time, body["commandId"], body["result"])
        for (topic, _), log in deployment.topics.logs.items()
        if topic == REPLIES.name
        for record in log
        if (body := json.loads(record.own_value or b"{}")).get("ok") and body["result"].get("granted")
    ]
    if not granted:
        return
    _, command_id, result = sorted(granted, key=lambda each: each[:2])[-1 - which % len(granted)]
    of = (
        {name: result[name] for name in ("leaseId", "fencingNumber")}
        if "leaseId" in result
        else {"acquireCommandId": command_id, "leaseId": None}
    )
    for bucket in BUCKETS:
        # The other one has no such grant.
        deployment.send(type_, bucket, asks=True, used=used, leaseMs=20_000, **of)


@given(deployments, plays)
def test_what_rate_buckets_do_is_right(deployment: Deployment, steps: list[dict[str, Any]]) -> None:
    topics = play(deployment, steps)
    report = verify(deployment, topics)
    commands = sum(len(topics.logs[RATES, partition]) for partition in range(PARTITIONS))
    assert sum(report.commands.values()) == commands
    assert report.commands["pending"] == report.commands["lost"] == 0


@given(deployments, plays, st.data())
def test_it_is_right_wherever_each_topic_is_cut(
    deployment: Deployment, steps: list[dict[str, Any]], data: st.DataObject
) -> None:
    topics = play(deployment, steps).copy()
    moment = st.integers(0, deployment.steps)
    states = [data.draw(moment) for _ in range(PARTITIONS)]
    replies = data.draw(st.integers(max(states), deployment.steps))

    def seen_at(at: At) -> float:
        topic, partition = at
        return states[partition] if topic == CHANGELOG else deployment.steps if topic == RATES else replies

    topics.seen_at = seen_at
    verify(deployment, topics)


@given(deployments, plays, st.data())
def test_what_retention_and_compaction_have_removed_is_not_missed(
    deployment: Deployment, steps: list[dict[str, Any]], data: st.DataObject
) -> None:
    # Retention goes by the clock that the lanes go by, but for a minute.
    steps = [step for step in steps if step["do"] != "jump"]
    topics = play(deployment, steps, prompt=True).copy()
    for at in sorted(topics.logs):
        records = topics.logs[at]
        if at[0] == CHANGELOG:
            topics.compact(at, keep=data.draw(st.sets(st.sampled_from([record.at for record in records]))))
        elif data.draw(st.booleans()):
            topics.delete_before(at, data.draw(st.integers(0, records[-1].at + 1)))
    verify(deployment, topics)
