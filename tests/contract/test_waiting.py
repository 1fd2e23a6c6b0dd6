"""Wire contract, section 4: waiting lists."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.contract.bare_client import Asked, BareClient, command, key_in_partition, new_id
from tests.contract.conftest import StillServed

LONG_MS = 30_000
MAX_WAITS = 1000


def wait_for_event(client: BareClient, run_id: str, after_seq: int = 0, **fields: Any) -> Asked:
    """Ask for the events after `after_seq`, waiting for as long as may be."""
    return client.ask("events.list", run_id, **{"afterSeq": after_seq, "timeoutMs": LONG_MS, **fields})


def seqs(answer: dict[str, Any]) -> list[int]:
    """The `seq` of each event of an answered list."""
    assert answer["ok"] is True, answer
    return [event["seq"] for event in answer["result"]["events"]]


def answers(client: BareClient, asked: Asked) -> int:
    """How many replies came for a question, up to the topic's present end."""
    client.reader.catch_up("replies")
    return len(client.reader.records("replies", lambda record: record.key == asked.correlation_id))


def test_a_waiting_list_is_answered_by_an_event_after_the_given_seq(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "one")
    waiting = wait_for_event(client, run_id, 1)
    assert client.append_log(run_id, "two")["seq"] == 2
    answer = client.reply(waiting)
    assert answer["commandId"] == waiting.command_id
    assert answer["result"] == {"events": [client.event(run_id, 2)], "latestSeq": 2, "firstSeq": 1}
    assert answers(client, waiting) == 1


def test_an_event_up_to_the_given_seq_does_not_answer_a_waiting_list(client: BareClient, run_id: str) -> None:
    waiting = wait_for_event(client, run_id, 3)
    for _ in range(3):
        client.append_log(run_id, "x")
    assert answers(client, waiting) == 0
    client.append_log(run_id, "the fourth")
    assert seqs(client.reply(waiting)) == [4]


def test_a_list_with_something_to_answer_does_not_wait(client: BareClient, run_id: str) -> None:
    for _ in range(2):
        client.append_log(run_id, "x")
    assert seqs(client.reply(wait_for_event(client, run_id, 0))) == [1, 2]


def test_a_list_without_a_time_out_does_not_wait(client: BareClient, run_id: str) -> None:
    for time_out in (0, -5, None, "x"):
        assert seqs(client.call("events.list", run_id, timeoutMs=time_out)) == []


def test_a_waiting_list_is_answered_at_its_time_out_with_what_there_is(
    client: BareClient, run_id: str
) -> None:
    client.append_log(run_id, "x")
    asked = wait_for_event(client, run_id, 1, timeoutMs=400)
    record = client.reply_record(asked.correlation_id)
    assert record.json()["result"] == {"events": [], "latestSeq": 1, "firstSeq": 1}
    # Both times are of the same machine in these tests.
    assert record.timestamp >= asked.sent.timestamp + 400


def test_a_time_out_over_30_seconds_is_taken_for_30_seconds(client: BareClient, run_id: str) -> None:
    waiting = wait_for_event(client, run_id, timeoutMs=10**12)
    client.append_log(run_id, "x")
    assert seqs(client.reply(waiting)) == [1]


def test_a_list_of_an_ended_run_is_answered_at_once(client: BareClient, run_id: str) -> None:
    client.result("terminal.set", run_id, status="completed")
    assert seqs(client.reply(wait_for_event(client, run_id, 1))) == []
    assert seqs(client.reply(wait_for_event(client, run_id, 77))) == []


def test_the_end_answers_every_wait_on_the_run(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    lists = [wait_for_event(client, run_id, after_seq) for after_seq in (1, 2, 50)]
    status = client.ask("run.status", run_id, waitMs=2000)
    client.result("terminal.set", run_id, status="completed", result={"a": 1}, totalRows=2)
    assert [seqs(client.reply(asked)) for asked in lists] == [[2], [], []]
    answer = client.reply(status)["result"]
    assert (answer["status"], answer["result"], answer["totalRows"]) == ("completed", {"a": 1}, 2)


def test_a_cancel_answers_every_wait_on_the_run(client: BareClient, run_id: str) -> None:
    waiting = wait_for_event(client, run_id, 5)
    client.result("run.cancel", run_id)
    assert seqs(client.reply(waiting)) == []


def test_a_waiting_list_without_a_reply_address_is_dropped(
    client: BareClient, run_id: str, still_served: StillServed
) -> None:
    for _ in range(MAX_WAITS + 5):
        client.post("events.list", run_id, timeoutMs=LONG_MS)
    still_served(client.partition_of(run_id))
    waiting = wait_for_event(client, run_id)
    client.append_log(run_id, "x")
    assert seqs(client.reply(waiting)) == [1]


def test_at_most_1000_waits_of_all_kinds_hang_on_a_run(client: BareClient) -> None:
    run_id = key_in_partition(0, client.partitions)
    client.append_log(run_id, "x")
    producer = client.transactional_producer()
    producer.begin_transaction()
    correlation_ids = []
    for number in range(MAX_WAITS):
        correlation_id, address = client.reply_address()
        correlation_ids.append(correlation_id)
        value = command("events.list", run_id, f"wait-{number}", afterSeq=1, timeoutMs=LONG_MS)
        producer.produce(client.topic("run-commands"), value, run_id.encode(), partition=0, headers=address)
    producer.commit_transaction()
    refused = client.reply(wait_for_event(client, run_id, 1))
    assert (refused["ok"], refused["error"]["code"]) == (False, "TOO_MANY_WAITS")
    assert client.refusal("run.status", run_id, waitMs=1000)["code"] == "TOO_MANY_WAITS"
    assert client.result("run.status", run_id)["status"] == "running"
    client.append_log(run_id, "for all")
    assert all(seqs(client.reply_record(correlation_id).json()) == [2] for correlation_id in correlation_ids)
    again = wait_for_event(client, run_id, 2)
    client.append_log(run_id, "there is room again")
    assert seqs(client.reply(again)) == [3]


def test_the_same_wait_sent_again_is_a_second_wait(client: BareClient, run_id: str) -> None:
    first = wait_for_event(client, run_id, command_id=(command_id := new_id()))
    second = wait_for_event(client, run_id, command_id=command_id)
    client.append_log(run_id, "x")
    assert [seqs(client.reply(asked)) for asked in (first, second)] == [[1], [1]]


def test_the_same_wait_to_the_same_correlation_id_is_answered_twice(client: BareClient, run_id: str) -> None:
    correlation_id, address = client.reply_address()
    value = command("events.list", run_id, new_id(), timeoutMs=LONG_MS)
    for _ in range(2):
        client.send(value, key=run_id.encode(), headers=address)
    client.append_log(run_id, "x")
    assert seqs(client.reply_record(correlation_id, count=2).json()) == [1]


def test_a_wait_on_an_unknown_run_creates_no_run(client: BareClient, run_id: str) -> None:
    waiting = wait_for_event(client, run_id)
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    assert client.result("run.submit", run_id, name="x")["seq"] == 1
    assert seqs(client.reply(waiting)) == [1]


def test_a_wait_on_an_unknown_run_that_times_out_leaves_none(client: BareClient, run_id: str) -> None:
    waiting = wait_for_event(client, run_id, timeoutMs=100)
    assert client.reply(waiting)["result"] == {"events": [], "latestSeq": 0, "firstSeq": 0}
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"


def test_a_status_waits_for_the_end(client: BareClient, run_id: str) -> None:
    client.result("run.submit", run_id, name="x")
    waiting = client.ask("run.status", run_id, waitMs=2000)
    client.append_log(run_id, "no end")
    client.result("run.cancel", run_id)
    assert client.reply(waiting)["result"]["status"] == "cancelled"


def test_a_waiting_status_is_answered_at_its_time_out_with_what_there_is(
    client: BareClient, run_id: str
) -> None:
    client.append_log(run_id, "x")
    asked = client.ask("run.status", run_id, waitMs=300)
    record = client.reply_record(asked.correlation_id)
    assert record.json()["result"]["status"] == "running"
    assert record.timestamp >= asked.sent.timestamp + 300


def test_a_status_waits_for_2_seconds_at_most(client: BareClient, run_id: str) -> None:
    client.append_log(run_id, "x")
    started = time.monotonic()
    asked = client.ask("run.status", run_id, waitMs=10**9)
    assert client.reply(asked)["result"]["status"] == "running"
    assert time.monotonic() - started >= 2.0


@pytest.mark.parametrize("wait_ms", [0, 2000])
def test_a_status_of_an_ended_run_does_not_wait(client: BareClient, run_id: str, wait_ms: int) -> None:
    client.result("run.cancel", run_id)
    assert client.result("run.status", run_id, waitMs=wait_ms)["status"] == "cancelled"


def test_a_refused_command_answers_no_wait(client: BareClient, run_id: str) -> None:
    waiting = wait_for_event(client, run_id)
    client.refusal("events.append", run_id, event={"type": "no such"})
    assert answers(client, waiting) == 0
    client.append_log(run_id, "x")
    assert seqs(client.reply(waiting)) == [1]


def test_one_event_answers_waits_on_every_reply_partition(client: BareClient, run_id: str) -> None:
    correlation_ids = [new_id().encode() for _ in range(client.partitions)]
    for partition, correlation_id in enumerate(correlation_ids):
        headers = [("reply-partition", str(partition).encode()), ("correlation-id", correlation_id)]
        client.post("events.list", run_id, headers=headers, timeoutMs=LONG_MS)
    client.append_log(run_id, "x")
    records = [client.reply_record(correlation_id) for correlation_id in correlation_ids]
    assert [record.partition for record in records] == list(range(client.partitions))
