"""The contract between a lane and a machine: what it is asked, what it may see, what it answers (DESIGN 4).

A machine is pure. It reads the key's state through a `View`, and returns a `Decision`: nothing takes effect
until the lane has accepted the whole of it. So the same commands and timers in the same order give the same
state, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from agents.tables import KeyPart, Table
from schemas.errors import ErrorCode
from schemas.replies import ReplyAddress
from schemas.values import Draft, Value

R = TypeVar("R")


class View(Protocol):
    """Read access to a lane's state, as it is after all earlier commands."""

    def get(self, table: Table[R], *key: KeyPart) -> R | None:
        """The record of a whole key, or None."""

    def scan(
        self, table: Table[R], *prefix: KeyPart, start: tuple[KeyPart, ...] | None = None
    ) -> Iterator[tuple[tuple[Any, ...], R]]:
        """All (key parts, record) whose key begins with `prefix`, in key order, from key `start` on."""


class Request(Value, Generic[R], frozen=True):
    """One command to decide."""

    command: R
    key: str
    """The entity's id: run id, bucket id, ..."""
    now: int
    """The lane's time in milliseconds since the epoch; it never goes back."""
    reply_to: ReplyAddress | None


@dataclass(frozen=True, slots=True)
class FiredTimer:
    """A timer that is due; it has been removed already."""

    key: str
    name: str
    now: int
    payload: Any


_NOTHING: dict[str, str] = {}


class Answer(Value, frozen=True):
    """What a client is told: `result` when `ok`, else `error` (with `code` and `message`).

    `by_reference` names fields of `body` that are not kept with a remembered answer but looked up again with
    `Machine.recall`: what may be larger than a remembered answer may be (2 KiB).
    """

    ok: bool
    body: dict[str, Any]
    by_reference: dict[str, str] = _NOTHING


def refusal(code: ErrorCode, message: str, **more: Any) -> Answer:
    """An answer that says no: a stable code, and what would be right."""
    return Answer(False, {"code": code.value, "message": message, **more})


# Plain tuples, since several are made for each command.

Change = tuple[Table[Any], tuple[KeyPart, ...], Any]
"""(table, key, record): a record to store; None deletes it."""

Output = tuple[str, str, bytes]
"""(topic, key, value): a record for an output topic (without prefix), in the lane's own partition."""

Message = tuple[str, str, bytes]
"""(topic, key, value): a command for another key, in the partition that owns the key."""

Count = tuple[str, int]
"""(name, number): something that the key's metrics count."""

AT_ONCE = 0
"""When a timer is due that fires right after the command or timer that sets it."""

TimerChange = tuple[str, int | None, Any]
"""(name, due, payload): schedule the key's timer of this name (again), or cancel it (`due` None)."""


class LateAnswer(Value, frozen=True):
    """The answer to an earlier command that waited."""

    reply_to: ReplyAddress
    command_id: str
    answer: Answer
    is_remembered: bool = False
    """The command was no question: when it comes again, it gets this answer."""


class Decision(Draft):
    """All that a command or a timer does: built by a machine, applied by the lane wholly or not at all."""

    changes: list[Change] = []
    outputs: list[Output] = []
    messages: list[Message] = []
    timers: list[TimerChange] = []
    late_answers: list[LateAnswer] = []
    counts: list[Count] = []
    answer: Answer | None = None
    """The answer to the command itself; None while it waits, and for timers."""
    forgets: bool = False
    """Forget the key's remembered answers: the entity is gone."""

    def put(self, table: Table[R], key: tuple[KeyPart, ...], record: R) -> None:
        """Store a record."""
        self.changes.append((table, key, record))

    def delete(self, table: Table[Any], key: tuple[KeyPart, ...]) -> None:
        """Delete a record; one that is not there is fine."""
        self.changes.append((table, key, None))

    def emit(self, topic: str, key: str, value: bytes) -> None:
        """Append a record to an output topic."""
        self.outputs.append((topic, key, value))

    def send(self, topic: str, key: str, value: bytes) -> None:
        """Send a command to another key."""
        self.messages.append((topic, key, value))

    def schedule(self, name: str, due: int, payload: Any = None) -> None:
        """Set the key's timer of this name; it replaces an earlier one."""
        self.timers.append((name, due, payload))

    def cancel(self, name: str) -> None:
        """Cancel the key's timer of this name; one that is not set is fine."""
        self.timers.append((name, None, None))

    def count(self, name: str, number: int = 1) -> None:
        """Count something in the key's metrics, once the decision is committed."""
        self.counts.append((name, number))

    def succeed(self, result: dict[str, Any], **by_reference: str) -> Decision:
        """Answer the command with a result."""
        self.answer = Answer(True, result, by_reference)
        return self

    def refuse(self, code: ErrorCode, message: str, **more: Any) -> Decision:
        """Answer the command with a refusal."""
        self.answer = refusal(code, message, **more)
        return self

    def answer_late(
        self, reply_to: ReplyAddress, command_id: str, answer: Answer, *, remember: bool = False
    ) -> None:
        """Answer an earlier command that waited; `remember` the answer when the command was no question."""
        self.late_answers.append(LateAnswer(reply_to, command_id, answer, remember))


class Machine(Protocol):
    """The rules of one command family."""

    def decide(self, request: Request[Any], view: View) -> Decision:
        """What a command does. Never raises for bad input: a refusal is an answer."""

    def fire(self, timer: FiredTimer, view: View) -> Decision:
        """What a timer does. A timer of a name that means nothing any more does nothing."""

    def recall(self, what: str, key: str, view: View) -> Any:
        """The present value of something that an answer holds by reference."""
