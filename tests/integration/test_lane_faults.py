"""A lane among trouble: untrusted local stores, many bugs, large answers, hung transactions."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from agents.run.machine import RunMachine
from streams import kafka_producer
from streams.healing import Healing
from streams.lane import LaneHaltedError, RestoreProgress
from streams.ports import LaneLostError, StoreBrokenError
from tests.integration.conftest import Deployment
from tests.integration.lane_rig import Rig


@pytest.fixture
def rig(deployment: Deployment) -> Rig:
    """A partition of its own, with a run that has five events."""
    rig = Rig(deployment.settings, deployment.next_partition())
    rig.log(rig.run_id(), 5)
    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    return rig


def tampered(rig: Rig, **stamp: Any) -> None:
    """Change what the local store says of itself."""
    lane = rig.owner()
    store = lane._store
    assert store is not None
    present = store.stamp()
    assert present is not None
    store.write([(b"planted", b"rubbish")], replace(present, **stamp))
    lane.close()


@pytest.mark.parametrize(
    "stamp",
    [
        pytest.param({"changelog_id": "another"}, id="topics made anew"),
        pytest.param({"position": 10**9}, id="position past the end"),
        pytest.param(
            {"written_at": int(time.time() * 1000) - 13 * 3_600_000}, id="deletions may be compacted away"
        ),
    ],
)
def test_a_store_that_cannot_be_trusted_is_made_anew(rig: Rig, stamp: dict[str, Any]) -> None:
    tampered(rig, **stamp)
    lane = rig.owner()
    assert lane._store is not None
    assert lane._store.get(b"planted") is None
    rig.log(rig.run_ids[0])
    lane.process(rig.commands(lane))
    lane.close()
    rig.assert_exactly_once()


def test_a_store_that_can_be_trusted_is_kept(rig: Rig) -> None:
    tampered(rig)
    lane = rig.owner()
    assert lane._store is not None
    assert lane._store.get(b"planted") == b"rubbish"
    lane.close()


@pytest.mark.parametrize("is_interrupted", [False, True], ids=["slow", "interrupted"])
def test_a_restore_that_deletions_may_have_been_dropped_from_is_done_anew(
    rig: Rig, is_interrupted: bool
) -> None:
    tampered(rig)
    behind = rig.owner()
    behind.close()
    ahead = rig.owner(new_disk=True)
    rig.log(rig.run_id(), 2)
    ahead.process(rig.commands(ahead))
    ahead.close()

    now = int(time.time() * 1000)
    late = now + 20 * 3_600_000

    def stand_still(progress: RestoreProgress) -> None:
        behind.wall_clock = lambda: late
        if is_interrupted:
            raise LaneLostError("the process was frozen, and the lane given to another")

    behind.wall_clock, behind._on_restore = lambda: now, stand_still
    with pytest.raises(LaneLostError):
        behind.open()
    behind._on_restore = lambda progress: None
    behind.open()
    assert behind._store is not None
    assert behind._store.get(b"planted") is None
    rig.log(rig.run_ids[0])
    behind.process(rig.commands(behind))
    behind.close()
    rig.assert_exactly_once()


def test_a_broken_store_is_made_anew(rig: Rig) -> None:
    lane = rig.owner()
    lane.close()
    folder = rig.settings.data_dir / "disk-0" / rig.settings.prefix / "state" / f"lane-{rig.partition}"
    for file in folder.glob("MANIFEST-*"):
        file.write_bytes(b"not a manifest")
    lane = rig.owner()
    rig.log(rig.run_ids[0])
    lane.process(rig.commands(lane))
    lane.close()
    rig.assert_exactly_once()


def test_a_store_with_damaged_blocks_is_made_anew(rig: Rig) -> None:
    run_id = rig.run_ids[0]
    rig.log(run_id, 30)
    lane = rig.owner()
    lane.process(rig.commands(lane))
    assert lane._store is not None
    lane._store._db.flush()  # type: ignore[attr-defined]
    lane.close()
    folder = rig.settings.data_dir / "disk-0" / rig.settings.prefix / "state" / f"lane-{rig.partition}"
    tables = list(folder.glob("*.sst"))
    assert tables
    for file in tables:
        data = bytearray(file.read_bytes())
        third = len(data) // 3
        data[third : third + 200] = b"\xa5" * 200
        file.write_bytes(data)

    lane = rig.owner()
    rig.log(run_id)
    while commands := rig.commands(lane):
        try:
            lane.process(commands)
        except StoreBrokenError:
            lane.open()
    lane.close()
    rig.assert_exactly_once()


def test_a_full_client_queue_is_waited_for(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_producer, "_CLIENT_QUEUE_RECORDS", 10)
    rig.log(rig.run_ids[0], 100)
    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    rig.assert_exactly_once()


def test_too_many_bugs_halt_the_lane_before_the_topic_is_drained(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: RunMachine, request: Any, view: Any) -> Any:
        raise ZeroDivisionError("a planted bug")

    rig.log(rig.run_ids[0], 20)
    lane = rig.owner(fault_halt_minimum=10)
    monkeypatch.setattr(RunMachine, "decide", broken)
    with pytest.raises(LaneHaltedError):
        lane.process(rig.commands(lane))
    assert rig.read("dead-letters") == []
    monkeypatch.undo()
    lane.close()

    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    rig.assert_exactly_once()


def test_a_transaction_of_somebody_else_that_hangs_is_named(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Healing, "marker_patience_s", 0.3)
    stranger = Producer(
        {"bootstrap.servers": rig.settings.brokers, "transactional.id": f"{rig.settings.prefix}-x"}
    )
    stranger.init_transactions(30)
    stranger.begin_transaction()
    stranger.produce(rig.settings.name("run-events"), b"{}", b"k", partition=rig.partition)
    assert stranger.flush(30) == 0
    with pytest.raises(LaneLostError, match="run-events"):
        rig.owner()
    stranger.abort_transaction(30)
    lane = rig.owner()
    rig.log(rig.run_ids[0])
    lane.process(rig.commands(lane))
    lane.close()
    rig.assert_exactly_once()


def test_large_answers_are_committed_in_several_transactions(deployment: Deployment) -> None:
    rig = Rig(deployment.settings, deployment.next_partition())
    run_id = rig.run_id()
    rig.send(run_id, "events.append", event={"type": "log", "line": "x" * 900_000})
    asked = []
    for number in range(40):
        headers = [("correlation-id", b"c%d" % number), ("reply-partition", b"%d" % rig.partition)]
        asked.append(rig.send(run_id, "events.list", headers=headers))
    lane = rig.owner()
    transactions = lane.transactions
    lane.process(rig.commands(lane))
    assert lane.transactions - transactions >= 2
    lane.close()
    assert [json.loads(reply.value())["commandId"] for reply in rig.read("replies")] == asked
