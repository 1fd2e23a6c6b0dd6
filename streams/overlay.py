"""What a batch of commands has changed so far, over the lane's store: read your writes, undo one command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from agents.tables import KeyPart, Table
from streams.ports import StateChange, StateStore

R = TypeVar("R")

_UNKNOWN = object()


class Overlay:
    """A view of a store with changes on top. Implements `agents.machine.View`.

    Records are kept decoded, so that a record that many commands of a batch touch is decoded and encoded once.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._records: dict[bytes, Any] = {}
        self._changed: dict[bytes, Table[Any]] = {}
        self._undo: list[tuple[bytes, Any, bool]] = []

    def get(self, table: Table[R], *key: KeyPart) -> R | None:
        """The record of a whole key, or None."""
        at = table.key(*key)
        record = self._records.get(at, _UNKNOWN)
        if record is _UNKNOWN:
            data = self._store.get(at)
            record = None if data is None else table.decode(data)
            self._records[at] = record
        found: R | None = record
        return found

    def scan(
        self, table: Table[R], *prefix: KeyPart, start: tuple[KeyPart, ...] | None = None
    ) -> Iterator[tuple[tuple[Any, ...], R]]:
        """All (key parts, record) whose key begins with `prefix`, in key order, from key `start` on.

        Collect what you need before you write to the table.
        """
        low = table.key(*prefix)
        first = max(low, table.key(*start)) if start is not None else low
        changed = sorted(at for at in self._changed if at.startswith(low) and at >= first)
        stored = self._store.scan(low, first)
        at, data = next(stored, (None, b""))
        for ours in [*changed, None]:
            while at is not None and (ours is None or at < ours):
                known = self._records.get(at, _UNKNOWN)
                yield table.parts(at), (table.decode(data) if known is _UNKNOWN else known)
                at, data = next(stored, (None, b""))
            if ours is not None:
                if at == ours:
                    at, data = next(stored, (None, b""))
                record = self._records[ours]
                if record is not None:
                    yield table.parts(ours), record

    def put(self, table: Table[R], key: tuple[KeyPart, ...], record: R | None) -> None:
        """Store a record; None deletes it."""
        at = table.key(*key)
        self._undo.append((at, self._records.get(at, _UNKNOWN), at in self._changed))
        self._records[at] = record
        self._changed[at] = table

    def savepoint(self) -> None:
        """Keep all that was changed so far; `rollback` comes back to here."""
        self._undo.clear()

    def rollback(self) -> None:
        """Undo what was changed since the last savepoint."""
        for at, record, was_changed in reversed(self._undo):
            if record is _UNKNOWN:
                del self._records[at]
            else:
                self._records[at] = record
            if not was_changed:
                self._changed.pop(at, None)
        self._undo.clear()

    def changes(self) -> list[StateChange]:
        """All changes as bytes, one for each key."""
        records = self._records
        return [
            (at, None if (record := records[at]) is None else table.encode(record))
            for at, table in self._changed.items()
        ]
