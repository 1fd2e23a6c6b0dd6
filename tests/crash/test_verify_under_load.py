"""`runlane verify` beside a worker that is killed under load: no false alarm, and what is forged is found."""

from __future__ import annotations

import json
from typing import Any

from tests.contract.bare_client import BareClient, new_id
from tests.crash.conftest import PARTITIONS, StartTrial
from tests.crash.trial import Trial
from tests.integration.command_line import CommandLine

KILLS = 3
ASKED = 20
PER_SECOND = 60
KINDS = ("window", "sliding", "bucket")
CALL: dict[str, Any] = {"toolId": "tool", "inputHash": "hash"}


def test_a_deployment_at_work_is_right_and_a_forged_event_is_found(start_trial: StartTrial) -> None:
    trial = start_trial(per_second=PER_SECOND, seed=5)
    verify = CommandLine(trial.brokers, trial.prefix)
    client = BareClient(trial.brokers, trial.prefix, PARTITIONS)
    try:
        _work_under_kills(trial, client, verify)
        trial.load.stop()
        for _ in range(2):
            trial.wait_for_markers()
        report = verify.json("verify", "--ask", str(ASKED))
        rules = {rule["rule"]: rule for rule in report["rules"]}
        assert rules["served"]["checked"] == ASKED
        assert all(rule["checked"] for rule in rules.values()), rules
        assert not any(rule["notCheckable"] for rule in rules.values()), rules
        assert report["commands"]["applied"] > KILLS * PER_SECOND
        assert report["commands"]["pending"] == 0

        _forge_an_event(client, verify)
    finally:
        client.close()


def _work_under_kills(trial: Trial, client: BareClient, verify: CommandLine) -> None:
    worker = trial.worker().start().wait_ready()
    trial.load.start()
    for kill in range(KILLS):
        _send_what_has_no_events(client)
        _take_permits(client)
        trial.wait_for_progress()
        worker.kill()
        if kill == 1:
            worker.lose_disk()
        worker.start()
        # While it is not there yet, or restores, or works.
        assert verify.json("verify")["clean"]
    trial.wait_for_progress()


def _send_what_has_no_events(client: BareClient) -> None:
    """Calls, a child's result, a signal, launch state and traces of some runs, of which half the commands ask."""
    for number in range(10):
        run = new_id("slots")

        def send(type_: str, run: str = run, *, asks: bool = bool(number % 2), **fields: Any) -> None:
            headers = client.reply_address()[1] if asks else None
            client.post(type_, run, headers=headers, **fields)

        send("call.claim", owner="a", **CALL)
        send("call.claim", owner="b", **CALL)
        send("call.await", asks=True, timeoutMs=30_000, **CALL)
        send("call.publish", fencingNumber=1, value={"rows": number}, **CALL)
        send("call.claim", owner="c", **CALL)
        send("child.terminal.await", asks=True, eventKey="key", timeoutMs=30_000)
        send("child.terminal.set", eventKey="key", data="x" * 200 * number)
        send("run.signal", eventKey="signal", payload=number)
        send("child.terminal.get", asks=True, eventKey="signal")
        send("retry.put", params=number)
        send("retry.claim", maxAttempts=3)
        send("instance.put", instanceId="instance")
        send("trace.add", trace={"source": "coordinator", "phase": "p", "ts": 1, "ms": number})


def _take_permits(client: BareClient) -> None:
    """Permits at once, late and in blocks of some buckets; some are given back, others run out."""
    for number in range(5):
        bucket = new_id("bucket")
        rule = {"ruleId": "r", "kind": KINDS[number % 3], "windowMs": 2000, "requestsPerWindow": 6}
        rules = [rule | ({"maxConcurrency": 4} if number > 2 else {})]
        taken = client.ask("rate.acquire", bucket, rules=rules, requested=2)
        client.post("rate.settle", bucket, acquireCommandId=taken.command_id, used=1)
        client.post("rate.lease", bucket, rules=rules, requested=5, leaseMs=1000)
        for _ in range(3):
            client.ask("rate.acquire", bucket, rules=rules, requested=2, leaseMs=1000, timeoutMs=20_000)
        client.post("rate.penalize", bucket, cooldownMs=100)


def _forge_an_event(client: BareClient, verify: CommandLine) -> None:
    """Write an event as no lane would: the next of its run, but of no command."""
    client.reader.catch_up("run-events")
    last = client.reader.records("run-events", lambda record: record.json()["type"] == "log")[-1]
    body = last.json()
    forged = {**body, "seq": body["seq"] + 1000, "commandId": "forged"}
    sent = client.send(json.dumps(forged).encode(), key=last.key, topic="run-events")

    report = verify.json("verify", code=1)
    place = {"topic": "run-events", "partition": sent.partition, "offset": sent.offset}
    found = {violation["rule"] for violation in report["violations"] if violation["place"] == place}
    assert {"seq", "origin"} <= found, report["violations"]
    (origin,) = [violation for violation in report["violations"] if violation["rule"] == "origin"]
    assert (origin["commandId"], origin["key"].encode()) == ("forged", last.key)
