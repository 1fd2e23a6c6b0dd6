"""Hundreds of wrong records to a real worker: no partition stops, and each record comes to what it has to.

Lanes in memory are told what the command topics hold, in the order of the log. The worker must have come to the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from schemas import dead_letters
from schemas.topics import DEAD_LETTERS, REPLIES
from streams.ports import CommandRecord, OutRecord
from streams.settings import Settings
from tests.contract.bare_client import BareClient, key_in_partition
from tests.contract.topic_reader import Record, TopicReader
from tests.fuzz.fuzzed_lane import FuzzedLane
from tests.fuzz.mutations import TOPICS, Draft, right_draft, wrong_draft
from tests.fuzz.odd_values import PARTITION, PARTITIONS
from tests.worker_process import WorkerProcess

RECORDS = 400
OUTPUTS = ("run-events", "run-terminals", "run-dispatch")


class Output(NamedTuple):
    """What is compared of one output record; not its times, which depend on when timers fired."""

    topic: str
    partition: int
    key: bytes | None
    what: tuple[Any, ...]


@pytest.fixture
def worker(settings: Settings, tmp_path: Path) -> Iterator[WorkerProcess]:
    """A worker on topics of its own, ready."""
    with WorkerProcess(str(settings.brokers), settings.prefix, tmp_path, partitions=PARTITIONS) as process:
        yield process.start().wait_ready()


@pytest.fixture
def client(settings: Settings, worker: WorkerProcess) -> Iterator[BareClient]:
    """A client of the worker."""
    client = BareClient(str(settings.brokers), settings.prefix, PARTITIONS)
    yield client
    client.close()


def test_wrong_records_stop_no_partition_and_each_is_accounted_for(
    settings: Settings, worker: WorkerProcess, client: BareClient
) -> None:
    chance = Random()
    seed = chance.getrandbits(32)
    print(f"seed {seed}")
    chance.seed(seed)
    sent: dict[tuple[str, int], Draft] = {}
    for number in range(RECORDS):
        draft = wrong_draft(chance) if chance.random() < 0.8 else right_draft(chance)
        headers = [(name.encode(), value) for name, value in draft.headers]
        offset = client.send_raw(
            draft.value, key=draft.key, headers=headers, partition=PARTITION, topic=draft.topic
        )
        sent[draft.topic, offset] = draft
        if number % 50 == 49:
            still_served(client, PARTITION)
    settle(client, {draft.key for draft in sent.values()})
    assert worker.alive
    assert worker.get("/health/ready")[0] == 200
    assert "runlane_lanes_lost_total 0.0" in worker.get("/metrics")[1]

    commands = TopicReader(str(settings.brokers), {topic: client.topic(topic) for topic in TOPICS})
    try:
        expected = Counter(expected_outputs(commands, sent))
    finally:
        commands.close()
    for topic in (*OUTPUTS, REPLIES.name, DEAD_LETTERS.name):
        client.reader.catch_up(topic)
        found = Counter(as_output(record) for record in client.reader.records(topic))
        assert found == Counter({output: n for output, n in expected.items() if output.topic == topic})


def still_served(client: BareClient, partition: int) -> None:
    """The next command of a partition is applied."""
    run_id = key_in_partition(partition, PARTITIONS, "next")
    assert client.append_log(run_id, "x")["seq"] == 1


def settle(client: BareClient, keys: Iterable[bytes | None]) -> None:
    """Answer all that waits, and wait until everything is done, also what was forwarded."""
    still_served(client, PARTITION)
    for key in sorted(key for key in keys if key and len(key) <= 512):
        try:
            client.call("run.cancel", key.decode())
        except UnicodeDecodeError:
            continue
    for partition in range(PARTITIONS):
        still_served(client, partition)


def expected_outputs(commands: TopicReader, sent: dict[tuple[str, int], Draft]) -> Iterator[Output]:
    """What a lane in memory makes of the same log."""
    records = []
    for topic in TOPICS:
        commands.catch_up(topic)
        records += commands.records(topic)
    accounted = 0
    for partition in range(PARTITIONS):
        lane = FuzzedLane(partition=partition)
        own = sorted((r for r in records if r.partition == partition), key=lambda r: (r.timestamp, r.offset))
        for record in own:
            lane.now = max(lane.now, record.timestamp)
            draft = sent.get((record.topic, record.offset)) if partition == PARTITION else None
            headers = draft.headers if draft else record.headers
            fed = lane.feed_record(
                CommandRecord(
                    record.topic,
                    partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    # As the consumer reads them: the native client would end such a name at its NUL.
                    tuple((name.replace("\0", "\ufffd"), value) for name, value in headers),
                )
            )
            accounted += draft is not None
            for output in (*fed.timer_outputs, *fed.outputs):
                if output.topic in (*OUTPUTS, REPLIES.name, DEAD_LETTERS.name):
                    yield as_output(output)
    assert accounted == len(sent)


def as_output(record: Record | OutRecord) -> Output:
    """What is compared of a record."""
    what: tuple[Any, ...]
    if record.topic == DEAD_LETTERS.name:
        reasons = dict(record.headers or ())
        what = (record.value, reasons[dead_letters.OFFSET], reasons[dead_letters.CODE])
    else:
        body = json.loads(record.value or b"")
        refused = record.topic == REPLIES.name and not body["ok"]
        what = (
            body["commandId"],
            body.get("seq"),
            body.get("ok"),
            body["error"]["code"] if refused else None,
        )
    return Output(record.topic, record.partition, record.key, what)
