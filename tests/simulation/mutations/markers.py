"""Mutations: what a broker lost in a crash."""

from __future__ import annotations

from typing import Any

import pytest

from streams.healing import Healing
from streams.lane_log import LaneLog
from tests.simulation.memory_cluster import MemoryProducer
from tests.simulation.mutations.registry import mutation


@mutation
def ignore_lost_markers(patch: pytest.MonkeyPatch) -> None:
    """What hangs is left alone."""
    patch.setattr(LaneLog, "heal", lambda log: None)


@mutation
def abort_a_half_marked_transaction_that_is_visible(patch: pytest.MonkeyPatch) -> None:
    """What hangs is ended as aborted, though it is committed elsewhere."""
    patch.setattr(Healing, "_was_committed", lambda healing, hanging, record: False)


@mutation
def abort_what_was_followed(patch: pytest.MonkeyPatch) -> None:
    """What hangs everywhere is ended as aborted, though its lane built on it."""
    patch.setattr(
        Healing, "_was_committed", lambda healing, hanging, record: healing._cluster.is_visible(record)
    )


@mutation
def commit_a_half_marked_transaction_that_is_aborted(patch: pytest.MonkeyPatch) -> None:
    """What hangs is ended as committed, though it is aborted elsewhere."""
    patch.setattr(Healing, "_was_committed", lambda healing, hanging, record: True)


@mutation
def leave_what_hangs_among_others(patch: pytest.MonkeyPatch) -> None:
    """What hangs in partitions with several writers is left alone."""
    look = Healing._look

    def exclusive_only(healing: Healing) -> Any:
        return look(healing)._replace(shared=[])

    patch.setattr(Healing, "_look", exclusive_only)


@mutation
def go_on_after_a_connection_broke(patch: pytest.MonkeyPatch) -> None:
    """A lane writes with an id whose last markers may be lost."""
    produce = MemoryProducer.produce

    def bold(producer: MemoryProducer, *args: Any) -> None:
        producer._crashes = producer._kafka.crashes
        produce(producer, *args)

    patch.setattr(MemoryProducer, "produce", bold)
