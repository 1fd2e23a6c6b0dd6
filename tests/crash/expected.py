"""What must come of the commands in a log, by a small model of the wire contract.

It knows the commands that the crash tests send, and imports nothing of ours.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.contract.bare_client import partition_of
from tests.crash.history import History, Place, Row

REPEAT_WINDOW = 1000
QUESTIONS = ("events.list", "run.status")
COMMANDS = ("run.submit", "run.cancel", "events.append", "terminal.set", *QUESTIONS)


@dataclass(frozen=True)
class ExpectedEvent:
    """An event that a command must have made."""

    seq: int
    type: str
    command_id: str
    text: str
    """Of a log its line, else its status."""


@dataclass(frozen=True)
class ExpectedReply:
    """The answer that a command must have got; `result` holds only what is worth comparing."""

    command_id: str | None
    ok: bool
    result: dict[str, Any]
    """Fields of the result, or of the error."""


@dataclass
class RunModel:
    """What is known of a run after the commands so far."""

    events: list[ExpectedEvent] = field(default_factory=list)
    status: str = "running"
    ended_by: str | None = None
    submit_seq: int = 0
    remembered: int = 0
    answers: dict[str, tuple[int, ExpectedReply]] = field(default_factory=dict)
    """By command id: its number among the remembered ones, and the first answer."""

    @property
    def latest_seq(self) -> int:
        """`seq` of the latest event."""
        return len(self.events)


@dataclass
class Expected:
    """All that must be on the output topics."""

    runs: dict[bytes, RunModel] = field(default_factory=lambda: defaultdict(RunModel))
    replies: dict[bytes, tuple[Place, ExpectedReply]] = field(default_factory=dict)
    """By correlation id: the command's place and its answer."""
    dead_letters: dict[tuple[int, int], tuple[Row, str]] = field(default_factory=dict)
    """By partition and offset: the record and the code."""
    dispatches: dict[bytes, str] = field(default_factory=dict)
    """By run: the id of the command that submitted it."""
    forwarded: list[Row] = field(default_factory=list)
    """Records in the wrong partition."""


def expected_of(history: History) -> Expected:
    """What must come of the commands in the log, each in the order of its partition."""
    expected = Expected()
    for partition in range(history.partitions):
        for row in history.partition("run-commands", partition):
            _apply(expected, row, history.partitions)
    return expected


def envelope_fault(row: Row) -> str | None:
    """The code that a record's envelope is refused with; None for a right one."""
    if not row.key:
        return "INVALID_KEY"
    body = row.body
    if not body:
        return "INVALID_JSON"
    if body.get("type") not in COMMANDS:
        return "UNKNOWN_COMMAND"
    if not isinstance(body.get("commandId"), str):
        return "INVALID_COMMAND_ID"
    return None if body.get("runId") == row.key.decode() else "KEY_MISMATCH"


def _apply(expected: Expected, row: Row, partitions: int) -> None:
    if fault := envelope_fault(row):
        expected.dead_letters[row.place.partition, row.place.offset] = (row, fault)
        command_id = row.body.get("commandId")
        _answer(expected, row, ExpectedReply(command_id, False, {"code": fault}))
        return
    assert row.key is not None
    if partition_of(row.key, partitions) != row.place.partition:
        expected.forwarded.append(row)
        return
    run, body = expected.runs[row.key], row.body
    command_id = body["commandId"]
    if body["type"] in QUESTIONS:
        if body["type"] == "run.status" and not run.events:
            answer = ExpectedReply(command_id, False, {"code": "RUN_NOT_FOUND"})
        else:
            answer = ExpectedReply(command_id, True, {"latestSeq": run.latest_seq})
        _answer(expected, row, answer)
        return
    number, first = run.answers.get(command_id, (0, None))
    if first is None or run.remembered - number >= REPEAT_WINDOW:
        first = _decide(expected, run, row.key, body)
        run.remembered += 1
        run.answers[command_id] = (run.remembered, first)
    _answer(expected, row, first)


def _answer(expected: Expected, row: Row, answer: ExpectedReply) -> None:
    if correlation_id := row.header("correlation-id"):
        expected.replies[correlation_id] = (row.place, answer)


def _decide(expected: Expected, run: RunModel, key: bytes, body: dict[str, Any]) -> ExpectedReply:
    type_, command_id = body["type"], body["commandId"]
    if type_ == "run.submit" and run.submit_seq:
        return ExpectedReply(command_id, True, {"seq": run.submit_seq})
    if run.ended_by is not None:
        if type_ == "run.cancel" or (type_ == "terminal.set" and body["status"] == run.status):
            return ExpectedReply(command_id, True, {"terminal.commandId": run.ended_by})
        return ExpectedReply(command_id, False, {"code": "RUN_ENDED", "terminal.commandId": run.ended_by})
    seq = run.latest_seq + 1
    if type_ == "run.submit":
        run.events.append(ExpectedEvent(seq, "status", command_id, "running"))
        run.submit_seq = seq
        expected.dispatches[key] = command_id
        return ExpectedReply(command_id, True, {"seq": seq})
    if type_ == "events.append":
        event = body["event"]
        run.events.append(
            ExpectedEvent(seq, event["type"], command_id, event.get("line", event.get("status")))
        )
        return ExpectedReply(command_id, True, {"seq": seq})
    run.status = body["status"] if type_ == "terminal.set" else "cancelled"
    run.ended_by = command_id
    run.events.append(ExpectedEvent(seq, "terminal", command_id, run.status))
    return ExpectedReply(command_id, True, {"terminal.commandId": command_id})
