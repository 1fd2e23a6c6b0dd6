"""Mutations: what a mutation may know of a lane."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.stored import LaneProgress
from streams.lane import Lane
from streams.lane_log import LaneLog
from streams.lane_tables import PROGRESS
from streams.ports import (
    StateChange,
    StateStore,
    StoreStamp,
)


class Knowledge:
    """What a mutation may know of a lane from the side of its log."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._lanes: dict[LaneLog, Lane] = {}
        self.produced: dict[LaneLog, tuple[Any, Any]] = {}
        """The last (changes, outputs)."""
        produce, make = LaneLog.produce, Lane.__init__

        def remember(log: LaneLog, changes: Any, outputs: Any) -> None:
            self.produced[log] = (changes, outputs)
            produce(log, changes, outputs)

        def made(lane: Lane, *args: Any, **options: Any) -> None:
            make(lane, *args, **options)
            self._lanes[lane._log] = lane

        patch.setattr(LaneLog, "produce", remember)
        patch.setattr(Lane, "__init__", made)

    def lane(self, log: LaneLog) -> Lane:
        """The lane that writes to the log."""
        return self._lanes[log]

    def store(self, log: LaneLog) -> StateStore:
        """The lane's store."""
        store = self.lane(log)._store
        assert store is not None
        return store

    def progress(self, log: LaneLog) -> LaneProgress:
        """The progress that the transaction in flight would make."""
        changes: list[StateChange] = self.produced[log][0]
        return PROGRESS.decode(next(value for key, value in changes if key == PROGRESS.key() and value))

    def write(self, log: LaneLog) -> None:
        """Write the transaction in flight to the store, under the stamp that the store has."""
        store = self.store(log)
        lane = self.lane(log)
        stamp = store.stamp() or StoreStamp(lane._changelog_id, 0, lane.wall_clock())
        store.write(self.produced[log][0], stamp)
