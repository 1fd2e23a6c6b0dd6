"""The overlay over a real RocksDB against two plain dictionaries: reads, scans, undo, and what is written."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agents.tables import raw_table
from streams.overlay import Overlay
from streams.ports import StoreStamp
from streams.rocks_store import RocksStores

TABLE = raw_table("tested", (str, int))
OTHER = raw_table("tested.too", (str, int))

TEXTS = st.sampled_from(["", "a", "a\0", "a\0b", "a\1", "b", "é", "\U0001f600", "\x7f"])
NUMBERS = st.sampled_from([0, 1, 2, 255, 256, 2**63, 2**64 - 1])
VALUES = st.binary(max_size=3)


class OverlayMachine(RuleBasedStateMachine):
    """Batches over a store that is kept, each with commands that are kept or undone."""

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.store = RocksStores(self.folder, block_cache_mb=1, write_buffer_mb=1, lanes=1).open(0)
        self.stored: dict[Any, bytes] = {}
        self.overlay = Overlay(self.store)
        self.overlay.savepoint()
        self.present: dict[Any, bytes] = {}
        self.saved: dict[Any, bytes] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)

    @rule(text=TEXTS, number=NUMBERS, value=VALUES)
    def put(self, text: str, number: int, value: bytes) -> None:
        self.overlay.put(TABLE, (text, number), value)
        self.present[text, number] = value

    @rule(text=TEXTS, number=NUMBERS)
    def delete(self, text: str, number: int) -> None:
        self.overlay.put(TABLE, (text, number), None)
        self.present.pop((text, number), None)

    @rule(text=TEXTS, number=NUMBERS)
    def put_in_another_table(self, text: str, number: int) -> None:
        self.overlay.put(OTHER, (text, number), b"other")

    @rule()
    def keep_the_command(self) -> None:
        self.overlay.savepoint()
        self.saved = dict(self.present)

    @rule()
    def undo_the_command(self) -> None:
        self.overlay.rollback()
        self.present = dict(self.saved)

    @rule()
    def commit(self) -> None:
        changes = self.overlay.changes()
        assert len({key for key, _ in changes}) == len(changes)
        self.store.write(changes, StoreStamp("id", 1, 1))
        self.overlay = Overlay(self.store)
        self.saved = dict(self.present)

    @rule(text=TEXTS, number=NUMBERS)
    def get(self, text: str, number: int) -> None:
        assert self.overlay.get(TABLE, text, number) == self.present.get((text, number))

    @rule(text=TEXTS)
    def scan_by_prefix(self, text: str) -> None:
        found = list(self.overlay.scan(TABLE, text))
        assert found == sorted((key, value) for key, value in self.present.items() if key[0] == text)

    @rule(text=TEXTS, number=NUMBERS)
    def scan_from_a_start(self, text: str, number: int) -> None:
        found = list(self.overlay.scan(TABLE, text, start=(text, number)))
        expected = [
            (key, value) for key, value in self.present.items() if key[0] == text and key[1] >= number
        ]
        assert found == sorted(expected)

    @invariant()
    def a_full_scan_finds_all(self) -> None:
        if hasattr(self, "overlay"):
            assert dict(self.overlay.scan(TABLE)) == self.present


TestOverlay = OverlayMachine.TestCase
TestOverlay.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
