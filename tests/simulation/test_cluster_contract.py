"""What a lane relies on of Kafka, on the in-memory one and on a real broker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import pytest

from streams.ports import (
    HEAL_KEY,
    FencedError,
    LaneLostError,
    LoggedRecord,
    OutRecord,
    RecordsRefusedError,
)
from streams.transaction_names import names_of
from tests.conftest import MakeSettings
from tests.simulation.cluster_sides import REFUSED_BYTES, KafkaSide, Side, until
from tests.simulation.contract_steps import (
    CHANGELOG,
    COMMANDS,
    EVENTS,
    REFUSING,
    REPLIES,
    TERMINALS,
    event,
    half_marked,
    is_a,
    keys,
    opened,
    restored,
    state,
    transaction,
    write,
    write_and_commit,
)


def test_a_commit_makes_all_of_it_readable_in_order_and_its_marker_takes_an_offset(side: Side) -> None:
    producer = opened(side)
    write(side, producer, "a1", "a2", "a3")
    assert producer.commit() == 3
    events = until(side, EVENTS, lambda found: len(found) == 3)
    assert [(seen.offset, seen.key) for seen in events] == [(0, b"a1"), (1, b"a2"), (2, b"a3")]
    write(side, producer, "b1")
    assert producer.commit() == 5
    assert until(side, EVENTS, lambda found: len(found) == 4)[-1][:2] == (4, b"b1")
    assert restored(side.lane()) == state("a1", "a2", "a3", "b1")


def test_nothing_of_an_open_transaction_is_readable_and_nothing_behind_it(side: Side) -> None:
    side.send(COMMANDS, b"before", b"v")
    stranger = side.begin("stranger")
    stranger.send(COMMANDS, b"inside", b"v")
    side.send(COMMANDS, b"behind", b"v")
    assert [seen.key for seen in side.read(COMMANDS)] == [b"before"]
    assert side.lane().command_range(COMMANDS) == (0, 3)
    stranger.commit()
    assert keys(side, COMMANDS, 3) == [b"before", b"inside", b"behind"]


def test_aborted_records_are_skipped_and_leave_a_hole(side: Side) -> None:
    stranger = side.begin("stranger")
    stranger.send(COMMANDS, b"gone", b"v")
    side.send(COMMANDS, b"kept", b"v")
    stranger.abort()
    side.send(COMMANDS, b"later", b"v")
    found = until(side, COMMANDS, lambda found: len(found) == 2)
    assert [seen.key for seen in found] == [b"kept", b"later"]
    assert found[0].offset == 1
    assert side.lane().command_range(COMMANDS) == (0, 4)


def test_a_new_owner_ends_the_open_transaction_and_the_old_owner_cannot_commit(side: Side) -> None:
    old = opened(side)
    write(side, old, "a")
    if isinstance(side, KafkaSide):
        # The records of a real client reach the log by themselves a little later.
        wait_for_end(side, 1)
    new = opened(side)
    with pytest.raises(FencedError):
        old.commit()
    write(side, new, "b")
    new.commit()
    assert keys(side, EVENTS, 1) == [b"b"]
    assert restored(side.lane()) == state("b")


def wait_for_end(side: Side, end: int) -> None:
    """Return when the changelog has so many records."""
    lane = side.lane()
    while lane.changelog_end() < end:
        pass


def test_an_old_owner_with_nothing_open_finds_out_at_its_next_commit(side: Side) -> None:
    old = opened(side)
    write(side, old, "a")
    old.commit()
    opened(side)
    with pytest.raises(LaneLostError):
        write_and_commit(side, old, "b")
    assert keys(side, EVENTS, 1) == [b"a"]


def test_the_ids_of_a_ring_are_fenced_one_by_one(side: Side) -> None:
    first, second = opened(side, 0), opened(side, 1)
    opened(side, 0)
    write(side, second, "b")
    second.commit()
    with pytest.raises(LaneLostError):
        write_and_commit(side, first, "a")
    assert keys(side, EVENTS, 1) == [b"b"]


def test_a_commit_behind_another_ids_open_transaction_is_not_readable_yet(side: Side) -> None:
    first, second = opened(side, 0), opened(side, 1)
    if isinstance(side, KafkaSide):
        stranger = side.begin("holds-up")
        stranger.send(EVENTS, b"held", b"v")
        release: Callable[[], None] = stranger.abort
    else:
        write(side, first, "a")
        release = lambda: (opened(side, 0), None)[1]  # noqa: E731
    write(side, second, "b")
    second.commit()
    assert side.read(EVENTS) == []
    release()
    assert keys(side, EVENTS, 1) == [b"b"]


def test_a_restore_reads_deletions_and_starts_anywhere(side: Side) -> None:
    producer = opened(side)
    write(side, producer, "a1", "a2")
    middle = producer.commit()
    producer.produce([(b"a1", None), (b"a3", b"x")], [], transaction(side, "b"))
    end = producer.commit()
    lane = side.lane()
    until(side, CHANGELOG, lambda found: len(found) == 4)
    assert restored(lane) == [*state("a1", "a2"), (b"a1", None), (b"a3", b"x")]
    assert restored(lane, middle) == [(b"a1", None), (b"a3", b"x")]
    assert restored(lane, end) == []
    assert list(lane.read_changelog(lane.changelog_end(), lane.changelog_end())) == []


def test_a_restore_skips_aborted_changes(side: Side) -> None:
    old = opened(side)
    write(side, old, "a")
    if isinstance(side, KafkaSide):
        wait_for_end(side, 1)
    new = opened(side)
    assert restored(side.lane()) == []
    write(side, new, "b")
    position = new.commit()
    until(side, CHANGELOG, lambda found: len(found) == 1)
    lane = side.lane()
    assert restored(lane) == state("b")
    committed = [offset for offset in range(lane.changelog_end()) if lane.is_committed(offset)]
    assert committed == [position - 1]


def test_a_record_that_the_broker_refuses_aborts_all_of_it(side: Side) -> None:
    producer = opened(side)
    incompressible = b"".join(hashlib.sha256(b"%d" % n).digest() for n in range(REFUSED_BYTES // 16))
    refused = OutRecord(REFUSING, side.partition, b"a", incompressible)
    with pytest.raises(RecordsRefusedError):
        write_and_commit(side, producer, "a", outputs=[event(side, "a"), refused])
    producer.close()
    producer = opened(side)
    write(side, producer, "b")
    producer.commit()
    assert keys(side, EVENTS, 1) == [b"b"]
    assert restored(side.lane()) == state("b")


def test_retention_moves_the_first_offset(side: Side) -> None:
    for number in range(5):
        side.send(COMMANDS, b"%d" % number, b"v")
    lane = side.lane()
    assert lane.command_range(COMMANDS) == (0, 5)
    side.delete_before(COMMANDS, 3)
    assert side.lane().command_range(COMMANDS) == (3, 5)


def test_topics_that_were_made_anew_have_other_ids(side: Side, make_settings: MakeSettings) -> None:
    if isinstance(side, KafkaSide):
        side = KafkaSide(make_settings(partitions=2), 1)
    write(side, producer := opened(side), "a")
    producer.commit()
    before = side.lane().changelog_id()
    assert side.lane().changelog_id() == before
    side.make_anew()
    lane = side.lane()
    assert lane.changelog_id() != before
    assert lane.changelog_end() == 0


def test_a_strangers_open_transaction_hangs_where_only_the_lane_may_write(side: Side) -> None:
    stranger = side.begin("stranger")
    stranger.send(TERMINALS, b"k", b"v")
    stranger.send(REPLIES, b"k", b"v")
    (found,) = side.lane().hung()
    assert (found.place, names_of(found)) == ((TERMINALS, side.partition, 0), frozenset())
    stranger.abort()
    until(side, TERMINALS, lambda records: not side.lane().hung())


def unread_here(side: Side) -> list[LoggedRecord]:
    """What the lane's transaction `a` left unread in the test's own partition."""
    return [record for record in side.lane().unread(is_a(side)) if record.place.partition == side.partition]


def test_what_lost_its_marker_hangs_and_is_visible_elsewhere(lossy: Side) -> None:
    half_marked(lossy, EVENTS, REPLIES)
    until(lossy, TERMINALS, lambda found: len(found) == 1)
    lane = lossy.lane()
    (hung,) = lane.hung()
    (unread,) = unread_here(lossy)
    assert hung.place == (EVENTS, lossy.partition, 0)
    assert unread.place == (REPLIES, lossy.partition, 0)
    assert is_a(lossy)(names_of(hung))
    assert lane.is_visible(hung)
    assert unread in lane.unread(lambda names: False)


def test_what_lost_all_its_markers_is_visible_nowhere(lossy: Side) -> None:
    half_marked(lossy, EVENTS, TERMINALS, REPLIES, CHANGELOG)
    lane = lossy.lane()
    found = lane.hung()
    assert {hung.place.topic for hung in found} == {EVENTS, TERMINALS, CHANGELOG}
    assert not lane.is_visible(found[0])


def test_another_transaction_is_no_sign_of_the_one_that_hangs(lossy: Side) -> None:
    producer = opened(lossy)
    write(lossy, producer, "b", outputs=[event(lossy, "b"), event(lossy, "b", TERMINALS)])
    producer.commit()
    until(lossy, TERMINALS, lambda found: len(found) == 1)
    half_marked(lossy, EVENTS, TERMINALS, REPLIES, CHANGELOG)
    lane = lossy.lane()
    assert not lane.is_visible(lane.hung()[0])


def test_what_stands_behind_a_transaction_that_hangs_is_named(lossy: Side) -> None:
    half_marked(lossy, EVENTS, CHANGELOG)
    other = opened(lossy, 1)
    write(lossy, other, "b")
    other.commit()
    lane = lossy.lane()
    changelog = next(hung.place for hung in lane.hung() if hung.place.topic == CHANGELOG)
    (first, behind) = lane.records(changelog, committed=False)
    assert [first.key, behind.key] == [b"a", b"b"]
    assert names_of(behind) == {transaction(lossy, "b").decode()}
    assert list(lane.records(changelog, committed=True)) == []


def test_what_is_unread_is_found_behind_what_hangs_of_others(lossy: Side) -> None:
    stranger = lossy.begin("stranger")
    stranger.send(REPLIES, b"k", b"v")
    half_marked(lossy, REPLIES)
    write(lossy, opened(lossy, 1), "b", outputs=[event(lossy, "b", REPLIES)])
    first, unread = unread_here(lossy)
    assert [first.place.offset, unread.place.offset] == [0, 1]
    assert names_of(first) == frozenset()
    stranger.abort()


@pytest.mark.parametrize("commit", [True, False])
def test_what_hangs_can_be_ended_either_way(lossy: Side, commit: bool) -> None:
    producer = half_marked(lossy, EVENTS)
    lossy.lane()
    producer.write([OutRecord(EVENTS, lossy.partition, HEAL_KEY, None)], commit=commit)
    until(lossy, EVENTS, lambda found: not lossy.lane().hung())
    assert keys(lossy, EVENTS, 0) == ([b"a", HEAL_KEY] if commit else [])
    write(lossy, producer, "b")
    producer.commit()
    assert keys(lossy, EVENTS, 3 if commit else 1)[-1] == b"b"


def test_a_later_marker_of_the_id_ends_all_that_it_has_open_in_the_partition(lossy: Side) -> None:
    producer = half_marked(lossy, EVENTS)
    write(lossy, producer, "b")
    producer.commit()
    assert keys(lossy, EVENTS, 2) == [b"a", b"b"]


def test_a_partition_ends_with_its_last_record_whatever_became_of_it(lossy: Side) -> None:
    producer = half_marked(lossy, EVENTS)
    write(lossy, producer, "b", outputs=[])
    producer.commit()
    producer.write([OutRecord(TERMINALS, lossy.partition, b"c", b"v", [("h", b"x")])], commit=False)
    until(lossy, CHANGELOG, lambda found: len(found) == 2)
    tails = {record.place.topic: record for record in lossy.lane().tails()}
    assert {topic: record.key for topic, record in tails.items()} == {
        EVENTS: b"a",
        CHANGELOG: b"b",
        TERMINALS: b"c",
    }
    assert (tails[TERMINALS].value, list(tails[TERMINALS].headers)) == (b"v", [("h", b"x")])
