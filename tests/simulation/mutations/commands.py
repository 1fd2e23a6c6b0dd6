"""Mutations: which commands are taken, and what time it is."""

from __future__ import annotations

from typing import Any

import pytest

from streams.batch import Batch
from streams.inbox import Chunk, Inbox
from streams.lane_host import LaneHost
from streams.lane_runner import LaneRunner
from streams.overlay import Overlay
from streams.ports import (
    CommandRecord,
)
from tests.simulation.mutations.registry import mutation
from tests.simulation.partition_log import PartitionLog


@mutation
def apply_commands_below_the_watermark(patch: pytest.MonkeyPatch) -> None:
    """What comes again after a seek is applied again."""
    apply = Batch.apply

    def careless(batch: Batch, record: CommandRecord) -> None:
        watermark = batch.watermarks.get(record.topic, -1)
        batch.watermarks[record.topic] = min(watermark, record.offset - 1)
        apply(batch, record)
        batch.watermarks[record.topic] = max(watermark, record.offset)

    patch.setattr(Batch, "apply", careless)


@mutation
def accept_a_chunk_whose_predecessor_is_missing(patch: pytest.MonkeyPatch) -> None:
    """A lost chunk is not noticed when the next one arrives."""
    put = Inbox.put

    def careless(inbox: Inbox, chunk: Chunk) -> None:
        put(inbox, Chunk(chunk.topic, -1, chunk.epoch, chunk.records, chunk.size))

    patch.setattr(Inbox, "put", careless)


@mutation
def ignore_epochs(patch: pytest.MonkeyPatch) -> None:
    """Chunks that were fetched before a seek are taken for answers to it."""
    put = Inbox.put

    def careless(inbox: Inbox, chunk: Chunk) -> None:
        epoch = inbox._epoch.get(chunk.topic, chunk.epoch)
        put(inbox, Chunk(chunk.topic, chunk.previous, epoch, chunk.records, chunk.size))

    patch.setattr(Inbox, "put", careless)


@mutation
def seek_behind_what_was_delivered(patch: pytest.MonkeyPatch) -> None:
    """After a gap the consumer goes on behind what it delivered last, not behind the watermark."""

    async def seek(runner: LaneRunner, topics: set[str]) -> bool:
        heads = {topic: runner.lane.watermark(topic) for topic in topics}
        for topic in topics:
            delivered = runner._seeker.delivered(topic, runner.partition)  # type: ignore[attr-defined]
            heads[topic] = max(heads[topic], -1 if delivered is None else delivered)
        epochs = await runner._seeker.seek(runner.partition, {t: head + 1 for t, head in heads.items()})
        runner.inbox.restart({topic: (heads[topic], epoch) for topic, epoch in epochs.items()})
        return len(epochs) == len(topics)

    patch.setattr(LaneRunner, "_seek", seek)


@mutation
def have_no_watchdog_for_lost_chunks(patch: pytest.MonkeyPatch) -> None:
    """A lost last chunk makes no gap, and nobody looks for it."""
    patch.setattr(LaneHost, "_find_lost_chunk", lambda host, runner, topic: None)


@mutation
def take_commands_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    """The consumer reads uncommitted records."""
    read = PartitionLog.read

    def careless(log: PartitionLog, offset: int, limit: int, *, committed: bool = True) -> Any:
        is_fetch = 1 <= limit <= 12
        return read(log, offset, limit, committed=committed and not is_fetch)

    patch.setattr(PartitionLog, "read", careless)


@mutation
def say_nothing_of_expired_commands(patch: pytest.MonkeyPatch) -> None:
    """Commands that retention deleted are passed over in silence."""

    def silent(batch: Batch, topic: str, first: int, next_offset: int, now: int) -> None:
        batch.watermarks[topic] = next_offset - 1
        batch._read += 1

    patch.setattr(Batch, "skip_expired", silent)


@mutation
def let_the_clock_go_back(patch: pytest.MonkeyPatch) -> None:
    """The lane's time follows the broker's clock when that goes back."""
    apply = Batch.apply

    def careless(batch: Batch, record: CommandRecord) -> None:
        if record.offset > batch.watermarks.get(record.topic, -1):
            batch.clock = record.timestamp
        apply(batch, record)

    patch.setattr(Batch, "apply", careless)


@mutation
def forget_the_savepoints_rollback(patch: pytest.MonkeyPatch) -> None:
    """What a failed command changed stays."""
    patch.setattr(Overlay, "rollback", lambda overlay: overlay._undo.clear())
