"""Wire contract, section 1: a command that comes again."""

from __future__ import annotations

import pytest

from tests.contract.bare_client import BareClient, command, key_in_partition, new_id
from tests.contract.topic_reader import TopicReader

WINDOW = 1000
EVENT = {"type": "log", "line": "hello"}


def append_many(client: BareClient, run_id: str, count: int) -> None:
    """Append `count` events without replies, and wait until they are there."""
    before = client.result("events.list", run_id, limit=1)["latestSeq"]
    producer = client.transactional_producer()
    producer.begin_transaction()
    for _ in range(count):
        value = command("events.append", run_id, new_id(), event=EVENT)
        producer.produce(
            client.topic("run-commands"), value, run_id.encode(), partition=client.partition_of(run_id)
        )
    producer.commit_transaction()
    client.event(run_id, before + count)


def test_a_repeat_gets_the_first_answer_and_changes_nothing(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.call("events.append", run_id, command_id=command_id, event=EVENT)
    for _ in range(3):
        assert client.call("events.append", run_id, command_id=command_id, event=EVENT) == first
    assert client.append_log(run_id, "next")["seq"] == 2
    assert len(client.events(run_id)) == 2


def test_a_repeat_in_the_same_batch_gets_the_first_answer(client: BareClient) -> None:
    run_id = key_in_partition(1, client.partitions)
    value = command("events.append", run_id, new_id(), event=EVENT)
    producer = client.transactional_producer()
    producer.begin_transaction()
    correlation_ids = []
    for _ in range(30):
        correlation_id, address = client.reply_address()
        correlation_ids.append(correlation_id)
        producer.produce(client.topic("run-commands"), value, run_id.encode(), partition=1, headers=address)
    producer.commit_transaction()
    answers = [client.reply_record(correlation_id).json() for correlation_id in correlation_ids]
    assert answers == [answers[0]] * 30
    assert len(client.events(run_id)) == 1


def test_ids_are_remembered_per_key(client: BareClient, run_id: str) -> None:
    command_id, other = new_id(), new_id()
    assert client.append_log(run_id, "x", command_id=command_id)["seq"] == 1
    client.append_log(other, "first")
    assert client.append_log(other, "y", command_id=command_id)["seq"] == 2


def test_999_newer_ids_do_not_make_an_id_forgotten(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.append_log(run_id, "first", command_id=command_id)
    append_many(client, run_id, WINDOW - 1)
    assert client.append_log(run_id, "again", command_id=command_id) == first
    assert client.append_log(run_id, "next")["seq"] == WINDOW + 1


def test_1000_newer_ids_make_an_id_forgotten(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    client.append_log(run_id, "first", command_id=command_id)
    append_many(client, run_id, WINDOW)
    assert client.append_log(run_id, "again", command_id=command_id)["seq"] == WINDOW + 2


def test_repeats_questions_and_dead_letters_do_not_count_as_newer_but_refusals_do(
    client: BareClient, run_id: str
) -> None:
    command_id, repeated = new_id(), new_id()
    first = client.append_log(run_id, "first", command_id=command_id)
    client.append_log(run_id, "second", command_id=repeated)
    append_many(client, run_id, WINDOW - 3)
    for _ in range(3):
        client.append_log(run_id, "second", command_id=repeated)
        client.result("run.status", run_id)
        client.ask_bytes(command("no.such", run_id, new_id()), key=run_id.encode())
    assert client.append_log(run_id, "again", command_id=command_id) == first
    # The 999th newer id, and the 1,000th.
    client.refusal("events.append", run_id, event={"type": "no such"})
    assert client.append_log(run_id, "again", command_id=command_id) == first
    client.refusal("events.append", run_id, event={"type": "no such"})
    assert client.append_log(run_id, "again", command_id=command_id)["seq"] == WINDOW


def test_a_refusal_is_remembered_and_does_not_create_the_run(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.refusal("run.finish", run_id, command_id=command_id)
    assert client.refusal("run.status", run_id)["code"] == "RUN_NOT_FOUND"
    client.result("run.cancel", run_id)
    assert client.refusal("run.finish", run_id, command_id=command_id) == first


def test_a_refusal_by_the_state_is_remembered(client: BareClient, run_id: str) -> None:
    client.result("terminal.set", run_id, status="completed", result={"rows": 3})
    command_id = new_id()
    first = client.refusal("events.append", run_id, command_id=command_id, event=EVENT)
    assert first["code"] == "RUN_ENDED"
    assert client.refusal("events.append", run_id, command_id=command_id, event=EVENT) == first


@pytest.mark.parametrize("question", ["run.status", "events.list", "terminal.get"])
def test_a_question_is_not_remembered(client: BareClient, run_id: str, question: str) -> None:
    command_id = new_id()
    client.append_log(run_id, "one")
    before = client.result(question, run_id, command_id=command_id)
    client.result("terminal.set", run_id, status="completed")
    after = client.result(question, run_id, command_id=command_id)
    assert after != before


@pytest.mark.parametrize("question", ["run.status", "events.list", "terminal.get"])
def test_a_command_with_the_id_of_a_question_is_executed(
    client: BareClient, run_id: str, question: str
) -> None:
    command_id = new_id()
    client.append_log(run_id, "one")
    client.result(question, run_id, command_id=command_id)
    assert client.append_log(run_id, "two", command_id=command_id)["seq"] == 2


@pytest.mark.parametrize("question", ["run.status", "events.list", "terminal.get"])
def test_a_question_with_the_id_of_a_command_is_not_answered_from_memory(
    client: BareClient, run_id: str, question: str
) -> None:
    command_id = new_id()
    client.append_log(run_id, "one", command_id=command_id)
    assert client.result(question, run_id, command_id=command_id) == client.result(question, run_id)


def test_other_content_under_the_same_id_gets_the_first_answer(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.append_log(run_id, "one", command_id=command_id)
    assert client.append_log(run_id, "two", command_id=command_id) == first
    assert [event["line"] for event in client.events(run_id)] == ["one"]


def test_another_type_under_the_same_id_gets_the_first_answer(client: BareClient, run_id: str) -> None:
    command_id = new_id()
    first = client.append_log(run_id, "one", command_id=command_id)
    assert client.result("terminal.set", run_id, command_id=command_id, status="failed") == first
    assert client.result("run.submit", run_id, command_id=command_id, name="x") == first
    assert client.result("run.status", run_id)["status"] == "running"


@pytest.mark.parametrize("size", [1_000, 3_000, 700_000])
def test_a_repeat_of_any_size_gets_the_first_answer(client: BareClient, run_id: str, size: int) -> None:
    large, set_id, cancel_id, append_id = {"text": "é" * (size // 2)}, new_id(), new_id(), new_id()
    first = client.result("terminal.set", run_id, command_id=set_id, status="completed", result=large)
    assert first["terminal"]["result"] == large
    cancelled = client.result("run.cancel", run_id, command_id=cancel_id)
    assert cancelled["terminal"]["result"] == large
    refused = client.refusal("events.append", run_id, command_id=append_id, event=EVENT)
    assert refused["terminal"]["result"] == large
    assert client.result("terminal.set", run_id, command_id=set_id, status="completed") == first
    assert client.result("run.cancel", run_id, command_id=cancel_id) == cancelled
    assert client.refusal("events.append", run_id, command_id=append_id, event=EVENT) == refused


def test_a_stored_answer_is_at_most_2_kib(client: BareClient, broker: str, run_id: str) -> None:
    large = {"text": "x" * 700_000}
    client.result("terminal.set", run_id, status="completed", result=large, error="y" * 100_000)
    client.result("terminal.set", run_id, status="completed", result=large, error="y" * 100_000)
    client.result("run.cancel", run_id, reason="z" * 100_000)
    client.refusal("events.append", run_id, event=EVENT)
    client.refusal("events.append", run_id, event={"type": "w" * 100_000})
    client.refusal("run.submit", run_id, name="x" * 100_000)
    reader = TopicReader(broker, {"state-changelog": client.topic("state-changelog")})
    try:
        reader.catch_up("state-changelog")
        answers = reader.records(
            "state-changelog",
            lambda record: (
                (record.key or b"").startswith(b"lane.answer\0") and run_id.encode() in (record.key or b"")
            ),
        )
    finally:
        reader.close()
    assert len(answers) == 6
    assert max(len(record.value or b"") for record in answers) <= 2048
