"""The oracle: what a lane has to do, in the plainest way. One command after the other, at once, in dictionaries.

It shares the pure parts with the real lane (machines, envelopes, how records are rendered) and nothing of what
can go wrong: no batches, no overlay, no transactions, no store, no watermarks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.families import Family
from agents.machine import Answer, Decision, FiredTimer, Request, refusal
from agents.tables import KeyPart, Table
from schemas.commands import FieldError
from schemas.envelope import EnvelopeError, read_envelope
from schemas.errors import ErrorCode
from schemas.replies import ReplyAddress
from streams.lane_records import dead_letter_record, forwarded_record, reply_record
from streams.lane_rules import LaneRules
from streams.partitioner import partition_for
from streams.ports import CommandRecord, OutRecord
from tests.simulation.failing_machine import hits_a_bug


@dataclass
class Known:
    """The answers of one key that are remembered."""

    latest: int = 0
    answers: dict[str, tuple[int, int, Answer]] = field(default_factory=dict)
    """Command id -> number, time, answer."""


TimerKey = tuple[str, str, str]
"""(family, key, name)."""


class SequentialLane:
    """One lane. Also the `View` of its machines."""

    def __init__(self, rules: LaneRules, partition: int) -> None:
        self._rules = rules
        self._partition = partition
        self.clock = 0
        self.state: dict[bytes, bytes] = {}
        """What the machines stored."""
        self.timers: dict[TimerKey, tuple[int, Any]] = {}
        """-> due, payload."""
        self.outputs: list[OutRecord] = []
        self.fired: list[tuple[int, int, TimerKey]] = []
        """When a timer fired, when it was due, and which."""
        self._known: defaultdict[tuple[str, str], Known] = defaultdict(Known)

    def apply(self, record: CommandRecord) -> None:
        """Process one command."""
        self.clock = max(self.clock, record.timestamp)
        self.fire_due(self.clock)
        family = self._rules.families[record.topic]
        try:
            envelope = read_envelope(
                family.commands,
                record.key,
                record.value,
                record.headers,
                reply_partitions=self._rules.partitions,
                max_bytes=self._rules.max_command_bytes,
            )
        except EnvelopeError as error:
            self._bury(record, error.code, error.message, error.reply_to, error.command_id)
            return
        owner = partition_for(record.key or b"", self._rules.partitions)
        if owner != self._partition:
            self.outputs.append(forwarded_record(record, owner))
            return
        key, command_id, reply_to = envelope.key, envelope.command_id, envelope.reply_to
        is_question = family.commands.by_type[envelope.type].is_question
        known = None if is_question else self._recall(family, key, command_id)
        if known is not None:
            self._reply(reply_to, command_id, known)
            return
        try:
            command = family.commands.parse(envelope.body)
        except FieldError as error:
            answer: Answer | None = refusal(error.code, error.message)
        else:
            if hits_a_bug(command_id):
                self._bury(record, ErrorCode.INTERNAL_ERROR, "", reply_to, command_id)
                return
            decision = family.machine.decide(Request(command, key, self.clock, reply_to), self)
            self._take(family, key, decision)
            answer = decision.answer
        if answer is None:
            return
        if not is_question:
            self._remember(family, key, command_id, answer)
        self._reply(reply_to, command_id, answer)

    def refuse(self, record: CommandRecord) -> None:
        """A command whose outputs the broker does not take."""
        family = self._rules.families[record.topic]
        envelope = read_envelope(
            family.commands,
            record.key,
            record.value,
            record.headers,
            reply_partitions=self._rules.partitions,
            max_bytes=self._rules.max_command_bytes,
        )
        self._bury(record, ErrorCode.OUTPUT_TOO_LARGE, "", envelope.reply_to, envelope.command_id)

    def skip_expired(self, topic: str, first: int, now: int) -> None:
        """Retention deleted commands."""
        self.clock = max(self.clock, now)
        gone = CommandRecord(topic, self._partition, first, self.clock, None, None, ())
        self._bury(gone, ErrorCode.COMMANDS_EXPIRED, "", None, None)

    def fire_due(self, now: int, limit: int | None = None) -> None:
        """Fire the timers that are due, at most so many."""
        self.clock = max(self.clock, now)
        due = sorted((due, at) for at, (due, _) in self.timers.items() if due <= self.clock)
        for when, at in due[:limit]:
            if self.timers.get(at, (None, None))[0] != when:
                continue
            payload = self.timers.pop(at)[1]
            self.fired.append((self.clock, when, at))
            name, key, timer = at
            family = next(family for family in self._rules.families.values() if family.name == name)
            fired = FiredTimer(key, timer, self.clock, payload)
            self._take(family, key, family.machine.fire(fired, self))

    def bury_due(self, now: int) -> None:
        """Give up the first timer that is due, since the broker does not take its outputs."""
        self.clock = max(self.clock, now)
        _, at = min((due, at) for at, (due, _) in self.timers.items() if due <= self.clock)
        del self.timers[at]
        family = next(family for family in self._rules.families.values() if family.name == at[0])
        topic = family.commands.topic
        record = CommandRecord(topic, self._partition, -1, self.clock, at[1].encode(), None, ())
        self._bury(record, ErrorCode.OUTPUT_TOO_LARGE, "", None, None)

    def get(self, table: Table[Any], *key: KeyPart) -> Any:
        """See `agents.machine.View`."""
        data = self.state.get(table.key(*key))
        return None if data is None else table.decode(data)

    def scan(
        self, table: Table[Any], *prefix: KeyPart, start: tuple[KeyPart, ...] | None = None
    ) -> Iterator[tuple[tuple[Any, ...], Any]]:
        """See `agents.machine.View`."""
        within, first = table.key(*prefix), table.key(*start or prefix)
        for at in sorted(key for key in self.state if key.startswith(within) and key >= first):
            yield table.parts(at), table.decode(self.state[at])

    def _recall(self, family: Family, key: str, command_id: str) -> Answer | None:
        window = self._known.get((family.name, key))
        if window is None or command_id not in window.answers:
            return None
        number, at, answer = window.answers[command_id]
        if self.clock - at >= self._rules.repeat_ms or window.latest - number >= self._rules.repeat_limit:
            return None
        present = {name: family.machine.recall(what, key, self) for name, what in answer.by_reference.items()}
        return Answer(answer.ok, {**answer.body, **present})

    def _remember(self, family: Family, key: str, command_id: str, answer: Answer) -> None:
        window = self._known[family.name, key]
        window.latest += 1
        window.answers[command_id] = (window.latest, self.clock, answer)

    def _take(self, family: Family, key: str, decision: Decision) -> None:
        for table, parts, record in decision.changes:
            at = table.key(*parts)
            if record is None:
                self.state.pop(at, None)
            else:
                self.state[at] = table.encode(record)
        for name, due, payload in decision.timers:
            if due is None:
                self.timers.pop((family.name, key, name), None)
            else:
                self.timers[family.name, key, name] = (due, json.loads(json.dumps(payload)))
        for topic, to, value in decision.outputs:
            self.outputs.append(OutRecord(topic, self._partition, to.encode(), value))
        for topic, to, value in decision.messages:
            owner = partition_for(to.encode(), self._rules.partitions)
            self.outputs.append(OutRecord(topic, owner, to.encode(), value))
        for late in decision.late_answers:
            self._reply(late.reply_to, late.command_id, late.answer)
            if late.is_remembered:
                self._remember(family, key, late.command_id, late.answer)
        if decision.forgets:
            self._known.pop((family.name, key), None)

    def _reply(self, to: ReplyAddress | None, command_id: str | None, answer: Answer) -> None:
        if to is not None:
            self.outputs.append(reply_record(to, command_id, answer))

    def _bury(
        self,
        record: CommandRecord,
        code: ErrorCode,
        message: str,
        reply_to: ReplyAddress | None,
        command_id: str | None,
    ) -> None:
        topic = self._rules.full_name(record.topic)
        self.outputs.append(dead_letter_record(record, topic, code, message))
        self._reply(reply_to, command_id, refusal(code, message))


def records_equal(expected: OutRecord, actual: OutRecord) -> bool:
    """Whether a record is as expected: byte for byte, but for what is written for people only."""
    at = (expected.topic, expected.partition, expected.key)
    if at != (actual.topic, actual.partition, actual.key):
        return False
    return expected.value == actual.value or _meaning(expected.value) == _meaning(actual.value)


def _meaning(value: bytes | None) -> Any:
    """The JSON value without the text of an error, whose wording is nobody's contract."""
    try:
        body = json.loads(value or b"")
    except ValueError:
        return value
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        body["error"].pop("message", None)
    return body


def headers_for_machines(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, bytes | None]]:
    """The headers without what differs between two correct lanes."""
    free = ("runlane.transaction", "runlane.repair", "runlane.error.message", "runlane.error.traceback")
    return [header for header in headers if header[0] not in free]
