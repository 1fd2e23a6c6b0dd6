"""Mutations: which local store is trusted, and what is read."""

from __future__ import annotations

from typing import Any

import pytest

from streams.lane import Lane
from streams.ports import (
    StateStore,
    StoreStamp,
)
from tests.simulation.memory_cluster import MemoryLaneCluster
from tests.simulation.mutations.registry import mutation


def _trusting_stores(patch: pytest.MonkeyPatch, **other: Any) -> None:
    """Open the store as if its stamp were another one."""
    open_store = Lane._open_store

    def trusting(lane: Lane, end: int) -> tuple[StateStore, int]:
        stores = lane._stores

        class Seen:
            def open(self, partition: int) -> StateStore:
                store = stores.open(partition)
                stamp = store.stamp()
                if stamp is not None:
                    values = {name: value(lane, stamp, end) for name, value in other.items()}
                    shown = StoreStamp(
                        values.get("changelog_id", stamp.changelog_id),
                        values.get("position", stamp.position),
                        values.get("written_at", stamp.written_at),
                    )
                    store.stamp = lambda: shown  # type: ignore[method-assign]
                return store

            def destroy(self, partition: int) -> None:
                stores.destroy(partition)

        lane._stores = Seen()
        try:
            return open_store(lane, end)
        finally:
            lane._stores = stores

    patch.setattr(Lane, "_open_store", trusting)


@mutation
def keep_a_store_that_is_ahead_of_the_changelog(patch: pytest.MonkeyPatch) -> None:
    """A store whose last change is not in the changelog is used."""
    _trusting_stores(patch, position=lambda lane, stamp, end: min(stamp.position, end))
    patch.setattr(MemoryLaneCluster, "is_committed", lambda cluster, position: True)


@mutation
def keep_a_store_of_another_topic_id(patch: pytest.MonkeyPatch) -> None:
    """A store of topics that were deleted and made anew is used."""
    _trusting_stores(patch, changelog_id=lambda lane, stamp, end: lane._changelog_id)


@mutation
def keep_a_store_that_missed_deletions(patch: pytest.MonkeyPatch) -> None:
    """A store is used however long ago it was written."""
    _trusting_stores(patch, written_at=lambda lane, stamp, end: lane.wall_clock())


@mutation
def trust_a_store_that_is_behind(patch: pytest.MonkeyPatch) -> None:
    """What was committed after the store was written last is not read."""
    restore = Lane._restore

    def lazy(lane: Lane, store: StateStore, start: int, end: int) -> int:
        return 0 if start else restore(lane, store, start, end)

    patch.setattr(Lane, "_restore", lazy)


@mutation
def restore_uncommitted_changes(patch: pytest.MonkeyPatch) -> None:
    """A restore reads what was aborted."""

    def careless(cluster: MemoryLaneCluster, start: int, end: int) -> Any:
        log = cluster._log("state-changelog")
        records, _ = log.read(max(start, log.start), log.end + 1, committed=False)
        if records:
            yield [(record.key or b"", record.value) for record in records], records[-1].offset + 1

    patch.setattr(MemoryLaneCluster, "read_changelog", careless)


@mutation
def forget_remembered_answers_in_a_restore(patch: pytest.MonkeyPatch) -> None:
    """After a restore, a command that is sent again is not known any more."""
    restore = Lane._restore

    def forgetful(lane: Lane, store: StateStore, start: int, end: int) -> int:
        records = restore(lane, store, start, end)
        stamp = store.stamp()
        if stamp is not None:
            store.write([(key, None) for key, _ in store.scan(b"lane.answer")], stamp)
        return records

    patch.setattr(Lane, "_restore", forgetful)
