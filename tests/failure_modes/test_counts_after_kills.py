"""A counter is short after kill -9, although the pipeline was set to exactly once.

Elsewhere: offsets are committed and the state is not, or the other way round.
`tests/crash/test_torture.py` checks the topics after twenty kills; here the state itself is asked, from disks
that were kept, wiped in part and lost.
"""

from __future__ import annotations

import threading
from functools import partial

from confluent_kafka import Producer

from tests.contract.bare_client import BareClient, command, new_id
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

COUNTERS, STEPS = 6, 2400


def test_counters_are_right_to_the_last_one(broker: str, worker: WorkerProcess, client: BareClient) -> None:
    runs = [new_id("counter") for _ in range(COUNTERS)]
    keys = {run_id.encode() for run_id in runs}

    def count() -> None:
        producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 2})
        for step in range(STEPS):
            run_id = runs[step % COUNTERS]
            value = command("events.append", run_id, f"+{step}", event={"type": "log", "line": f"+{step}"})
            producer.produce(
                client.topic("run-commands"), value, run_id.encode(), partition=client.partition_of(run_id)
            )
            if step % 50 == 0:
                # The kills come while there is more to do.
                producer.flush(60)
                pause.wait(0.05)
        assert producer.flush(60) == 0

    def visible() -> int:
        return len(client.reader.records("run-events", lambda record: record.key in keys))

    def is_visible(steps: int) -> bool:
        return visible() >= steps

    pause = threading.Event()
    counting = threading.Thread(target=count)
    counting.start()
    for lost, seen in ((None, 300), (worker.lose_state, 900), (worker.lose_disk, 1500)):
        wait_until(partial(is_visible, seen), f"{seen} steps are visible", 60)
        worker.kill()
        if lost is not None:
            lost()
        worker.start()
    counting.join(120)

    worker.wait_ready()
    check(client, runs)
    worker.kill()
    worker.lose_disk()
    worker.start().wait_ready()
    check(client, runs)
    assert visible() == STEPS


def check(client: BareClient, runs: list[str]) -> None:
    """Each counter is where it should be, and was raised last by the last step that was sent to it."""
    for number, run_id in enumerate(runs):
        listed = client.result("events.list", run_id, limit=1, afterSeq=STEPS // COUNTERS - 1)
        assert listed["latestSeq"] == STEPS // COUNTERS
        assert [event["line"] for event in listed["events"]] == [f"+{STEPS - COUNTERS + number}"]
