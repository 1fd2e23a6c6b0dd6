"""Command ids that come again, over batches and prunes, against a list of all that was ever answered."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.stored import LaneProgress
from streams import repeats
from streams.batch import Batch
from streams.lane_rules import LaneRules
from streams.lane_tables import ANSWERS
from streams.ports import CommandRecord, StateStore
from streams.receiving import receive
from streams.timers import NEVER
from tests.run_lane import RUN_FAMILY

LIMIT, EVERY = 7, 5
TOPIC = RUN_FAMILY.commands.topic

batches = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=30), max_size=12)
"""Of each command the number in its id; an id that comes again after a while may have been forgotten."""


class DictStore:
    """A store in memory: what a batch needs of one."""

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.state.get(key)

    def scan(self, prefix: bytes, start: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key in sorted(self.state):
            if key.startswith(prefix) and key >= (start or prefix):
                yield key, self.state[key]

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        for key, value in changes:
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value


def lane_rules() -> LaneRules:
    return LaneRules(
        families={TOPIC: RUN_FAMILY},
        partitions=1,
        max_command_bytes=1 << 20,
        repeat_limit=LIMIT,
        repeat_ms=10**9,
        full_name=lambda name: name,
    )


def append(offset: int, number: int) -> CommandRecord:
    """A log event; the one that it makes names the offset, so that a repeat is told from a new one."""
    event = {"type": "log", "line": str(offset)}
    body = {"type": "events.append", "runId": "r", "commandId": f"c{number}", "event": event}
    return CommandRecord(TOPIC, 0, offset, 1_000 + offset, b"r", json.dumps(body).encode(), ())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batches)
def test_an_id_is_known_until_so_many_newer_ones_came(
    monkeypatch: pytest.MonkeyPatch, given_batches: list[list[int]]
) -> None:
    monkeypatch.setattr(repeats, "_PRUNE_EVERY", EVERY)
    store, progress, next_due = DictStore(), LaneProgress(), NEVER
    remembered: list[int] = []
    offset, most = 0, 0
    for numbers in given_batches:
        batch = Batch(lane_rules(), 0, cast(StateStore, store), progress, next_due)
        applied: list[Any] = []
        for number in numbers:
            if number not in remembered[-LIMIT:]:
                remembered.append(number)
                applied.append(str(offset))
            batch.apply(receive(lane_rules(), append(offset, number)))
            offset += 1
        events = [json.loads(output.value or b"") for output in batch.outputs if output.topic == "run-events"]
        assert [event["line"] for event in events] == applied
        store.write(batch.changes())
        progress, next_due = batch.progress(), batch.timers.next_due
        most = max(most, len(numbers))
        kept = sum(key.startswith(ANSWERS.prefix) for key in store.state)
        assert kept >= len(set(remembered[-LIMIT:]))
        # What a prune leaves for the next one: the present batch's.
        assert kept <= LIMIT + EVERY + 2 * most
