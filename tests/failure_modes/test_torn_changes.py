"""A crash between two records of one change leaves a part of it, and the run is stuck for good.

Elsewhere: an end without its event, a counter without the event it counts, a timer without what it is for.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.kafka_producer import KafkaProducer
from tests.integration.lane_rig import DiedError, Rig
from tests.integration.test_lane_steps import with_producer

ALL = 10_000
"""More than the transaction has: the crash comes after its last record."""


def dying_after(records: int) -> type[KafkaProducer]:
    """Producers whose process dies once so many records of a transaction have reached the broker."""

    class FewRecords:
        """A client that dies in the middle."""

        def __init__(self, client: Any) -> None:
            self._client = client
            self._left = records

        def __getattr__(self, name: str) -> Any:
            return getattr(self._client, name)

        def produce(self, *args: Any, **kwargs: Any) -> None:
            """Produce one record, or die."""
            if self._left == 0:
                self._client.flush(30)
                raise DiedError
            self._left -= 1
            self._client.produce(*args, **kwargs)

    class Producer(KafkaProducer):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self._producer = FewRecords(self._producer)

        def _commit(self) -> None:
            self._producer.flush(30)
            raise DiedError

    return Producer


@pytest.mark.parametrize("records", [1, 2, 3, 8, 15, ALL])
def test_a_part_of_a_transaction_never_shows_and_the_run_goes_on(rig: Rig, records: int) -> None:
    run_id = rig.run_id()
    rig.send(run_id, "run.submit", name="work")
    rig.send(run_id, "events.list", headers=rig.address("waits"), afterSeq=2, timeoutMs=30_000)
    rig.sent.pop()
    rig.log(run_id)
    rig.send(run_id, "terminal.set", status="completed", headers=rig.address("ends"))
    lane = rig.owner(make_cluster=with_producer(dying_after(records)))
    with pytest.raises(DiedError):
        lane.process(rig.commands(lane))
    lane.close()
    outputs = ("run-events", "run-terminals", "run-dispatch", "state-changelog", "replies")
    assert {topic: len(rig.read(topic)) for topic in outputs} == dict.fromkeys(outputs, 0)

    successor = rig.owner(new_disk=records % 2 == 0)
    successor.process(rig.commands(successor))
    rig.send(run_id, "run.finish", headers=rig.address("finishes"))
    rig.sent.pop()
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()
    (end,) = [json.loads(record.value()) for record in rig.read("run-terminals")]
    assert (end["seq"], len(rig.read("run-dispatch"))) == (3, 1)
    replies = rig.replies()
    assert {name: len(answers) for name, answers in replies.items()} == {"waits": 1, "ends": 1, "finishes": 1}
    assert [event["type"] for event in replies["waits"][0]["result"]["events"]] == ["terminal"]
    assert replies["finishes"][0]["ok"]
