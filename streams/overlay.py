"""What a batch of commands has changed so far, over the lane's store: read your writes, undo one command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, TypeVar

from agents.tables import KeyPart, Table
from streams.ports import StateChange, StateStore

R = TypeVar("R")
Key = tuple[KeyPart, ...]

Records = dict[Key, Any]

_UNKNOWN: Any = object()


class Overlay:
    """A view of a store with changes on top. Implements `agents.machine.View`.

    Records and keys are kept as they are used, so that a record that many commands of a batch touch is read and
    made into bytes once.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._read = store.get
        self._tables: defaultdict[Table[Any], tuple[Records, Records, dict[Key, bytes]]]
        self._tables = defaultdict(lambda: ({}, {}, {}))
        """By table: what was changed, what was read, and keys as bytes: most that are read are then written."""
        self._undo: list[tuple[Records, Key, Any]] = []

    def get(self, table: Table[R], *key: KeyPart) -> R | None:
        """The record of a whole key, or None."""
        changed, known, keys = self._tables[table]
        found: R | None = changed.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = known.get(key)
            if found is None:
                at = keys[key] = table.key(*key)
                data = self._read(at)
                if data is not None:
                    found = known[key] = table.decode(data)
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
        records, known, _ = self._tables[table]
        changed = {at: key for key in records if key[:depth] == prefix and (at := table.key(*key)) >= first}
        stored = self._store.scan(low, first)
        theirs = next(stored, None)
        for ours in [*sorted(changed), None]:
            while theirs is not None and (ours is None or theirs[0] < ours):
                key = table.parts(theirs[0])
                yield key, known.get(key) or table.decode(theirs[1])
                theirs = next(stored, None)
            if ours is not None:
                if theirs is not None and theirs[0] == ours:
                    theirs = next(stored, None)
                record = records[changed[ours]]
                if record is not None:
                    yield changed[ours], record

    def stored(self, table: Table[R], *prefix: KeyPart) -> Iterator[tuple[bytes, bytes]]:
        """Keys and records as bytes, as the store has them: without what was changed. Cheaper than `scan`."""
        low = table.key(*prefix)
        return self._store.scan(low, low)

    def is_changed(self, table: Table[R], key: Key) -> bool:
        """Whether the record of a key was stored or deleted here."""
        return key in self._tables[table][0]

    def put(self, table: Table[R], key: Key, record: R | None) -> None:
        """Store a record; None deletes it."""
        changed = self._tables[table][0]
        self._undo.append((changed, key, changed.get(key, _UNKNOWN)))
        changed[key] = record

    def savepoint(self) -> None:
        """Keep all that was changed so far; `rollback` comes back to here."""
        self._undo.clear()

    def rollback(self) -> None:
        """Undo what was changed since the last savepoint."""
        for changed, key, record in reversed(self._undo):
            if record is _UNKNOWN:
                del changed[key]
            else:
                changed[key] = record
        self._undo.clear()

    def changes(self) -> list[StateChange]:
        """All changes as bytes, one for each key."""
        changes: list[StateChange] = []
        for table, (changed, _, keys) in self._tables.items():
            encode, encode_key = table.encode, table.key
            changes += [
                (keys.get(key) or encode_key(*key), None if record is None else encode(record))
                for key, record in changed.items()
            ]
        return changes
