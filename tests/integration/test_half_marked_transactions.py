"""A broker lost the markers of a transaction in some partitions: it is finished the way it is visible elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Producer

from schemas.topics import TOPICS
from streams.healing import Healing
from streams.ports import HEAL_KEY
from tests.integration.conftest import Deployment
from tests.integration.half_marked import losing_markers, unverified_transactions
from tests.integration.lane_rig import COMMANDS, Rig

CHANGELOG, EVENTS, REPLIES, DEAD_LETTERS = "state-changelog", "run-events", "replies", "dead-letters"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Healing, "marker_patience_s", 0.5)


@pytest.fixture
def rig(deployment: Deployment) -> Iterator[Rig]:
    """A partition with three commands and one record of rubbish, on a broker that does not see what is done to it."""
    rig = Rig(deployment.settings, deployment.next_partition())
    rig.log(rig.run_id(), 2)
    headers = [("correlation-id", b"c-1"), ("reply-partition", b"%d" % rig.partition)]
    rig.send(rig.run_id(), "events.append", headers=headers, event={"type": "log", "line": "answered"})
    poison = Producer({"bootstrap.servers": deployment.settings.brokers})
    poison.produce(deployment.settings.name(COMMANDS), b"{", b"poison", partition=rig.partition)
    assert poison.flush(30) == 0
    with unverified_transactions(str(deployment.settings.brokers)):
        yield rig


def keys(rig: Rig, topic: str) -> list[bytes]:
    """The keys of all visible records but the empty ones that a repair leaves."""
    return [record.key() for record in rig.read(topic) if record.key() != HEAL_KEY]


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param([EVENTS], id="events lost, state committed"),
        pytest.param([CHANGELOG], id="state lost, events committed"),
        pytest.param([CHANGELOG, EVENTS], id="only a reply committed"),
        pytest.param([REPLIES], id="only a reply lost"),
        pytest.param([DEAD_LETTERS], id="only a dead letter lost"),
        pytest.param(set(TOPICS) - {DEAD_LETTERS}, id="only a dead letter committed"),
    ],
)
@pytest.mark.parametrize("new_disk", [False, True])
def test_what_is_visible_anywhere_is_committed_everywhere(
    rig: Rig, lost: Iterable[str], new_disk: bool
) -> None:
    lane = rig.owner(make_cluster=losing_markers(lost))
    lane.process(rig.commands(lane))
    lane.close()

    successor = rig.owner(new_disk=new_disk)
    assert rig.commands(successor) == []
    rig.log(rig.run_id(), 2)
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()
    assert keys(rig, REPLIES) == [b"c-1"]
    assert keys(rig, DEAD_LETTERS) == [b"poison"]


@pytest.mark.parametrize("new_disk", [False, True])
def test_what_is_visible_nowhere_is_aborted_and_done_again(rig: Rig, new_disk: bool) -> None:
    lane = rig.owner(make_cluster=losing_markers(TOPICS))
    lane.process(rig.commands(lane))
    assert lane.watermark(COMMANDS) >= 0
    lane.close()
    assert rig.events() == []

    successor = rig.owner(new_disk=new_disk)
    assert successor.watermark(COMMANDS) == -1
    assert len(rig.commands(successor)) == 4
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()
    assert keys(rig, REPLIES) == [b"c-1"]
    assert keys(rig, DEAD_LETTERS) == [b"poison"]


def test_an_earlier_commit_does_not_stand_for_the_one_that_hangs(rig: Rig) -> None:
    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    rig.log(rig.run_id(), 2)
    lane = rig.owner(make_cluster=losing_markers(TOPICS))
    lane.process(rig.commands(lane))
    lane.close()

    successor = rig.owner()
    assert len(rig.commands(successor)) == 2
    successor.process(rig.commands(successor))
    successor.close()
    rig.assert_exactly_once()
