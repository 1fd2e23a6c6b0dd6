"""A lane in memory, for tests of machines: state as bytes, timers, outputs, replies; no Kafka, no repeats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.families import Family
from agents.machine import Answer, Decision, FiredTimer, Request
from agents.tables import KeyPart, Table
from schemas.commands import FieldError
from schemas.json_codec import encode
from schemas.replies import ReplyAddress

Reply = dict[str, Any]


@dataclass
class Touched:
    """What a command cost: keys that were read and records that were written or deleted."""

    reads: list[bytes] = field(default_factory=list)
    writes: list[bytes] = field(default_factory=list)


class SmallLane:
    """Applies decisions at once. Records go through the tables' bytes, as they do in the real lane."""

    def __init__(self, family: Family, now: int = 1_700_000_000_000) -> None:
        self.family = family
        self.now = now
        self.state: dict[bytes, bytes] = {}
        self.timers: dict[tuple[str, str], tuple[int, bytes]] = {}
        """(key, timer name) -> due, payload's JSON."""
        self.outputs: list[tuple[str, str, bytes]] = []
        """Topic, key, value."""
        self.late: list[tuple[str, Reply]] = []
        """Answers to commands that waited: command id, reply."""
        self.touched = Touched()
        """What the last command or timer touched."""
        self.forgotten: list[str] = []
        """Keys whose remembered answers were dropped."""
        self.remembered: list[str] = []
        """Ids of commands that waited and whose late answers are remembered."""
        self.last_answer: Answer | None = None
        self._addresses: dict[bytes, str] = {}
        self._commands = 0
        self._log = hashlib.sha256()

    def send(
        self, type_: str, key: str = "r", *, command_id: str | None = None, reply: bool = True, **fields: Any
    ) -> Reply:
        """Apply a command; returns its reply, `{"waits": True}` when it has none yet."""
        self._commands += 1
        command_id = command_id or f"c{self._commands}"
        id_field = self.family.commands.id_field
        body = {"type": type_, "commandId": command_id, id_field: key, **fields}
        correlation_id = b"\xff\x00%d" % self._commands
        self._addresses[correlation_id] = command_id
        try:
            command = self.family.commands.parse(json.loads(json.dumps(body)))
        except FieldError as error:
            return {"ok": False, "error": {"code": error.code.value, "message": error.message}}
        address = ReplyAddress(self._commands % 7, correlation_id) if reply else None
        self.touched = Touched()
        decision = self.family.machine.decide(Request(command, key, self.now, address), self)
        self._apply(key, decision)
        self.last_answer = decision.answer
        return _reply(decision.answer) if decision.answer is not None else {"waits": True}

    def recall(self, answer: Answer, key: str = "r") -> Reply:
        """The reply that a remembered answer makes now."""
        body = {name: value for name, value in answer.body.items() if name not in answer.by_reference}
        for name, what in answer.by_reference.items():
            body[name] = self.family.machine.recall(what, key, self)
        return _reply(Answer(answer.ok, body))

    def pass_time(self, ms: int) -> None:
        """Let time pass; timers fire when they are due, the earliest first."""
        end = self.now + ms
        while True:
            due = min(((due, at) for at, (due, _) in self.timers.items()), default=None)
            if due is None or due[0] > end:
                break
            key, name = due[1]
            payload = json.loads(self.timers.pop(due[1])[1])
            self.now = max(self.now, due[0])
            self.fire(key, name, payload)
        self.now = end

    def fire(self, key: str, name: str, payload: Any) -> Decision:
        """Fire one timer now, whether it is set or not."""
        self.touched = Touched()
        decision = self.family.machine.fire(FiredTimer(key, name, self.now, payload), self)
        self._apply(key, decision)
        return decision

    def get(self, table: Table[Any], *key: KeyPart) -> Any:
        """See `agents.machine.View`."""
        at = table.key(*key)
        self.touched.reads.append(at)
        data = self.state.get(at)
        return None if data is None else table.decode(data)

    def scan(
        self, table: Table[Any], *prefix: KeyPart, start: tuple[KeyPart, ...] | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """See `agents.machine.View`."""
        within, first = table.key(*prefix), table.key(*start or prefix)
        for at in sorted(key for key in self.state if key.startswith(within) and key >= first):
            self.touched.reads.append(at)
            yield table.parts(at), table.decode(self.state[at])

    def keys(self, table: Table[Any], *prefix: KeyPart) -> list[tuple[Any, ...]]:
        """The keys of a table that are stored."""
        first = table.key(*prefix)
        return [table.parts(key) for key in sorted(self.state) if key.startswith(first)]

    def record(self, table: Table[Any], *key: KeyPart) -> Any:
        """A stored record, or None."""
        data = self.state.get(table.key(*key))
        return None if data is None else table.decode(data)

    def values(self, topic: str, key: str = "r") -> list[dict[str, Any]]:
        """What was emitted to a topic under a key."""
        return [json.loads(value) for to, at, value in self.outputs if (to, at) == (topic, key)]

    def digest(self) -> str:
        """A hash of every byte that any command or timer wrote, emitted or answered so far, in order."""
        return self._log.hexdigest()

    def _apply(self, key: str, decision: Decision) -> None:
        for table, parts, record in decision.changes:
            at = table.key(*parts)
            self.touched.writes.append(at)
            data = None if record is None else table.encode(record)
            self._note(at, data)
            if data is None:
                self.state.pop(at, None)
            else:
                self.state[at] = data
        for name, due, payload in decision.timers:
            if due is None:
                self.timers.pop((key, name), None)
            else:
                self.timers[key, name] = (due, encode(payload))
            self._note(name.encode(), encode([due, payload]))
        for topic, to_key, value in decision.outputs:
            self.outputs.append((topic, to_key, value))
            self._note(f"{topic} {to_key}".encode(), value)
        for late in decision.late_answers:
            to, answer = late.reply_to, late.answer
            assert self._addresses[to.correlation_id] == late.command_id, "answered at another's address"
            self.late.append((late.command_id, _reply(answer)))
            if late.is_remembered:
                self.remembered.append(late.command_id)
            self._note(to.correlation_id, encode([to.partition, late.command_id, answer.ok, answer.body]))
        if decision.answer is not None:
            self._note(b"answer", encode([decision.answer.ok, decision.answer.body]))
        if decision.forgets:
            self.forgotten.append(key)

    def _note(self, name: bytes, data: bytes | None) -> None:
        for part in (name, b"-" if data is None else b"+" + data):
            self._log.update(len(part).to_bytes(8, "big") + part)


def _reply(answer: Answer) -> Reply:
    return json.loads(encode({"ok": answer.ok, "result" if answer.ok else "error": answer.body}))
