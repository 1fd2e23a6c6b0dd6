"""What a batch of commands has changed so far, over the lane's store: read your writes, undo one command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeVar

from agents.tables import KeyPart, Table
from streams.ports import StateChange, StateStore

R = TypeVar("R")
Key = tuple[KeyPart, ...]

_UNKNOWN = object()


class Overlay:
    """A view of a store with changes on top. Implements `agents.machine.View`.

    Records and keys are kept as they are used, so that a record that many commands of a batch touch is read and
    made into bytes once.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._records: defaultdict[Table[Any], dict[Key, Any]] = defaultdict(dict)
        self._changed: defaultdict[Table[Any], dict[Key, None]] = defaultdict(dict)
        self._undo: list[tuple[Table[Any], Key, Any, bool]] = []

    def get(self, table: Table[R], *key: KeyPart) -> R | None:
        """The record of a whole key, or None."""
        records = self._records[table]
        record = records.get(key, _UNKNOWN)
        if record is _UNKNOWN:
            data = self._store.get(table.key(*key))
            record = records[key] = None if data is None else table.decode(data)
        found: R | None = record
        return found

    def scan(
        self, table: Table[R], *prefix: KeyPart, start: Key | None = None
    ) -> Iterator[tuple[tuple[Any, ...], R]]:
        """All (key parts, record) whose key begins with `prefix`, in key order, from key `start` on.

        Collect what you need before you write to the table.
        """
        low = table.key(*prefix)
        first = max(low, table.key(*start)) if start is not None else low
        depth = len(prefix)
        records = self._records[table]
        changed = {
            at: key
            for key in self._changed[table]
            if key[:depth] == prefix and (at := table.key(*key)) >= first
        }
        stored = self._store.scan(low, first)
        theirs = next(stored, None)
        for ours in [*sorted(changed), None]:
            while theirs is not None and (ours is None or theirs[0] < ours):
                key = table.parts(theirs[0])
                known = records.get(key, _UNKNOWN)
                yield key, (table.decode(theirs[1]) if known is _UNKNOWN else known)
                theirs = next(stored, None)
            if ours is not None:
                if theirs is not None and theirs[0] == ours:
                    theirs = next(stored, None)
                record = records[changed[ours]]
                if record is not None:
                    yield changed[ours], record

    def put(self, table: Table[R], key: Key, record: R | None) -> None:
        """Store a record; None deletes it."""
        records, changed = self._records[table], self._changed[table]
        self._undo.append((table, key, records.get(key, _UNKNOWN), key in changed))
        records[key] = record
        changed[key] = None

    def savepoint(self) -> None:
        """Keep all that was changed so far; `rollback` comes back to here."""
        self._undo.clear()

    def rollback(self) -> None:
        """Undo what was changed since the last savepoint."""
        for table, key, record, was_changed in reversed(self._undo):
            if record is _UNKNOWN:
                del self._records[table][key]
            else:
                self._records[table][key] = record
            if not was_changed:
                self._changed[table].pop(key, None)
        self._undo.clear()

    def changes(self) -> list[StateChange]:
        """All changes as bytes, one for each key."""
        changes: list[StateChange] = []
        for table, keys in self._changed.items():
            records, encode, encode_key = self._records[table], table.encode, table.key
            changes += [
                (encode_key(*key), None if (record := records[key]) is None else encode(record))
                for key in keys
            ]
        return changes
