"""An answer goes to a waiter that had timed out, and the next one waits in vain; or a waiter gets two.

Elsewhere: the time-out and the event are handled apart, each believing that the waiter is still there.
"""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from tests.contract.bare_client import BareClient, command, new_id
from tests.failure_modes.caller import Caller
from tests.fuzz.fuzzed_lane import FuzzedLane
from tests.fuzz.mutations import Draft
from tests.fuzz.odd_values import KEYS
from tests.worker_process import WorkerProcess

RUN = KEYS[0]
TIMEOUT_MS = 1000


def draft(type_: str, number: int, **fields: object) -> Draft:
    """A command with a reply address of its own."""
    address = (("reply-partition", b"0"), ("correlation-id", b"%d" % number))
    return Draft("run-commands", RUN.encode(), command(type_, RUN, f"c{number}", **fields), address)


@pytest.mark.parametrize("ends", [False, True], ids=["an event", "the end"])
@pytest.mark.parametrize("commits", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_an_event_at_the_moment_of_the_time_out(offset: int, commits: tuple[bool, bool], ends: bool) -> None:
    lane = FuzzedLane()
    made = [
        *lane.feed(draft("events.append", 0, event={"type": "log", "line": "first"})).outputs,
        *lane.feed(draft("events.list", 1, afterSeq=1, timeoutMs=TIMEOUT_MS)).outputs,
        *lane.feed(draft("run.status", 2, waitMs=TIMEOUT_MS)).outputs,
    ]
    if commits[0]:
        lane.commit()
    lane.now += TIMEOUT_MS + offset
    if ends:
        fed = lane.feed(draft("terminal.set", 3, status="completed"))
    else:
        fed = lane.feed(draft("events.append", 3, event={"type": "log", "line": "second"}))
    made += [*fed.timer_outputs, *fed.outputs]
    if commits[1]:
        lane.commit()
    lane.now += 10 * TIMEOUT_MS
    made += lane.fire_due()
    made += lane.feed(draft("run.cancel", 4)).outputs

    answers: dict[bytes | None, list[dict[str, object]]] = {}
    for output in made:
        if output.topic == "replies":
            answers.setdefault(output.key, []).append(json.loads(output.value or b"")["result"])
    assert {key: len(given) for key, given in answers.items()} == dict.fromkeys(
        [b"0", b"1", b"2", b"3", b"4"], 1
    )
    in_time = offset < 0
    assert len(answers[b"1"][0]["events"]) == (1 if in_time else 0)  # type: ignore[arg-type]
    assert answers[b"2"][0]["status"] == ("completed" if in_time and ends else "running")


@pytest.mark.parametrize("commits", [False, True], ids=["in one batch", "in batches of one"])
@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("by", ["run.signal", "child.terminal.set"])
def test_a_signal_at_the_moment_of_the_time_out_is_told_once_and_not_lost(
    by: str, offset: int, commits: bool
) -> None:
    caller = Caller(commits=commits)
    for _ in range(2):
        assert caller.ask("child.terminal.await", eventKey="k", timeoutMs=TIMEOUT_MS) is None
    caller.pass_time(TIMEOUT_MS + offset)
    caller.result(by, eventKey="k", payload="it", data="it")
    caller.pass_time(10 * TIMEOUT_MS)
    # Whoever was told nothing in time asks again, and is told at once.
    late = caller.result("child.terminal.await", eventKey="k", timeoutMs=TIMEOUT_MS)
    assert late["state"]["data"] == "it"
    for answers in caller.answers[:2]:
        (answer,) = answers
        assert answer["result"]["state"] == (late["state"] if offset < 0 else None)


@pytest.mark.parametrize("commits", [False, True], ids=["in one batch", "in batches of one"])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_result_at_the_moment_of_the_time_out_is_told_once_and_not_lost(offset: int, commits: bool) -> None:
    caller = Caller(commits=commits)
    call = {"toolId": "t", "inputHash": "h"}
    caller.result("call.claim", owner="a", **call)
    assert caller.ask("call.await", timeoutMs=TIMEOUT_MS, **call) is None
    # Would take the lease, which holds.
    assert caller.ask("call.await", timeoutMs=TIMEOUT_MS, claim=True, owner="b", **call) is None
    caller.pass_time(TIMEOUT_MS + offset)
    published = caller.result("call.publish", fencingNumber=1, value="it", **call)
    assert published == {"published": True, "answered": 2 if offset < 0 else 0}
    caller.pass_time(10 * TIMEOUT_MS)
    hit = caller.result("call.await", timeoutMs=TIMEOUT_MS, **call)
    assert (hit["status"], hit["value"]) == ("hit", "it")
    for answers in caller.answers[1:3]:
        (answer,) = answers
        assert answer["result"] == (hit if offset < 0 else {"status": "timeout"})


def test_many_waits_that_race_with_events_get_one_answer_each(
    worker: WorkerProcess, client: BareClient
) -> None:
    chance = random.Random(3)
    runs = [new_id("race") for _ in range(4)]
    asked: list[bytes] = []
    for _ in range(400):
        run_id = chance.choice(runs)
        if chance.random() < 0.4:
            client.post("events.append", run_id, event={"type": "log", "line": "x"})
        else:
            correlation_id, address = client.reply_address()
            asked.append(correlation_id)
            is_short = chance.random() < 0.5
            client.post(
                "events.list",
                run_id,
                headers=address,
                timeoutMs=chance.randrange(60) if is_short else 30_000,
                afterSeq=10_000 if is_short else 0,
            )
    for run_id in runs:
        client.result("run.cancel", run_id)
    client.reader.catch_up("replies")
    ids = set(asked)
    found = Counter(record.key for record in client.reader.records("replies", lambda r: r.key in ids))
    assert found == dict.fromkeys(asked, 1)
