"""Mutations: what a commit makes, and what becomes of one that fails."""

from __future__ import annotations

import pytest

from streams.batch import Batch
from streams.lane import Lane
from streams.lane_log import LaneLog
from streams.lane_tables import PROGRESS
from streams.ports import (
    FencedError,
    LaneLostError,
    RecordsRefusedError,
    StateChange,
    StateStore,
)
from tests.simulation.mutations.knowledge import Knowledge
from tests.simulation.mutations.registry import mutation


@mutation
def write_the_store_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """The local store has what is not committed yet."""
    known, commit = Knowledge(patch), LaneLog.commit

    def early(log: LaneLog) -> int:
        known.write(log)
        return commit(log)

    patch.setattr(LaneLog, "commit", early)


@mutation
def keep_the_changes_of_a_failed_commit(patch: pytest.MonkeyPatch) -> None:
    """What a commit of unknown outcome would have changed stays in the local store."""
    known, commit = Knowledge(patch), LaneLog.commit

    def careless(log: LaneLog) -> int:
        try:
            return commit(log)
        except LaneLostError:
            known.write(log)
            raise

    patch.setattr(LaneLog, "commit", careless)


@mutation
def take_an_unknown_outcome_for_success(patch: pytest.MonkeyPatch) -> None:
    """The lane goes on after a commit of which it does not know how it ended."""
    known, commit = Knowledge(patch), LaneLog.commit

    def hopeful(log: LaneLog) -> int:
        try:
            return commit(log)
        except (FencedError, RecordsRefusedError):
            raise
        except LaneLostError:
            position = known.lane(log)._log.cluster
            return position.changelog_end()

    patch.setattr(LaneLog, "commit", hopeful)


@mutation
def retry_a_batch_blindly(patch: pytest.MonkeyPatch) -> None:
    """After a commit of unknown outcome the same batch is produced again, by the next id."""
    known, commit = Knowledge(patch), LaneLog.commit

    def again(log: LaneLog) -> int:
        try:
            return commit(log)
        except (FencedError, RecordsRefusedError):
            raise
        except LaneLostError:
            log.produce(*known.produced[log])
            return commit(log)

    patch.setattr(LaneLog, "commit", again)


@mutation
def acknowledge_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A batch counts as done before its commit, and a lane that opens again relies on that."""
    known, commit, load = Knowledge(patch), LaneLog.commit, Lane._load

    def early(log: LaneLog) -> int:
        known.lane(log)._progress = known.progress(log)
        return commit(log)

    def trusting(lane: Lane, store: StateStore) -> None:
        before = lane._progress
        load(lane, store)
        if before.transactions > lane._progress.transactions:
            lane._progress = before

    patch.setattr(LaneLog, "commit", early)
    patch.setattr(Lane, "_load", trusting)


@mutation
def drop_the_watermark_from_the_transaction(patch: pytest.MonkeyPatch) -> None:
    """The changelog does not say how far the lane is."""
    changes = Batch.changes

    def without(batch: Batch) -> list[StateChange]:
        return [change for change in changes(batch) if change[0] != PROGRESS.key()] or changes(batch)

    patch.setattr(Batch, "changes", without)
