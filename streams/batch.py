"""One batch of a lane: commands and timers in, state changes and outputs out. No I/O but reads of the store.

The order in which a command is looked at is the wire contract's (section 1): envelope, routing, repeat, fields,
state.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from agents.families import Family
from agents.machine import Answer, Decision, FiredTimer, Request, refusal
from schemas.commands import FieldError
from schemas.envelope import EnvelopeError
from schemas.errors import ErrorCode
from schemas.replies import ReplyAddress
from schemas.stored import LaneProgress
from streams.lane_records import dead_letter_record, forwarded_record, headers_size, reply_record
from streams.lane_rules import LaneRules
from streams.lane_tables import PROGRESS
from streams.overlay import Overlay
from streams.partitioner import partition_for
from streams.ports import CommandRecord, LaneLostError, OutRecord, StateChange, StateStore
from streams.receiving import ReceivedCommand
from streams.repeats import Repeats
from streams.timers import DueTimer, TimerQueue

T = TypeVar("T")

MAX_OUTPUT_BYTES = 1024 * 1024 + 64 * 1024
"""Most bytes of key and value of one output or state record (wire 2)."""

MAX_FORWARDED_BYTES = 8 * 1024 * 1024 - 64 * 1024
"""Most bytes of a command in the wrong partition, headers included; one that was compressed may be larger."""

MAX_REPLY_BYTES = MAX_OUTPUT_BYTES + 32 * 1024
"""A little more, so that whatever was stored also fits into an answer."""

MAX_BATCH_OUTPUT_BYTES = 16 * 1024 * 1024
"""A batch that has made so many bytes of outputs takes no further commands: questions may have large answers."""

MAX_BATCH_CHANGES = 50_000
"""A batch that has changed so many records takes no further commands: an eviction deletes hundreds."""

MAX_TIMERS_AT_ONCE = 1000
"""A batch fires at most so many timers, and takes no further commands once it has."""


@dataclass
class BatchCounts:
    """What a batch did, for metrics."""

    applied: int = 0
    skipped: int = 0
    repeated: int = 0
    refused: int = 0
    forwarded: int = 0
    timers: int = 0
    internal_errors: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    by_key: dict[tuple[str, str], int] = field(default_factory=dict)
    """What machines have counted: (name, key) -> number."""

    def add(self, other: BatchCounts) -> None:
        """Add the counts of another batch."""
        for name, value in vars(other).items():
            if isinstance(value, int):
                setattr(self, name, getattr(self, name) + value)
        for code, number in other.dead_letters.items():
            self.dead_letters[code] = self.dead_letters.get(code, 0) + number
        for at, number in other.by_key.items():
            self.by_key[at] = self.by_key.get(at, 0) + number


class Failure(NamedTuple):
    """Why a command or a timer had no effect, for a dead letter."""

    code: ErrorCode
    message: str
    traceback: str | None = None


class OutputTooLargeError(Exception):
    """An output of a command does not fit into a record."""


class Batch:
    """The effects of a run of commands and timers on one lane, not yet committed."""

    def __init__(
        self, rules: LaneRules, partition: int, store: StateStore, progress: LaneProgress, next_due: int
    ) -> None:
        """`progress` is the lane's state of progress before the batch; `next_due`: no timer is due earlier."""
        self._rules = rules
        self._partition = partition
        self.overlay = Overlay(store)
        self.timers = TimerQueue(self.overlay, next_due)
        self._repeats = Repeats(self.overlay, self.timers, rules)
        self.outputs: list[OutRecord] = []
        self.counts = BatchCounts()
        self.watermarks = dict(progress.watermarks)
        self.clock = progress.clock
        self._transactions = progress.transactions
        self.max_timers = MAX_TIMERS_AT_ONCE
        self._read = 0
        self._changes = 0
        self._output_bytes = 0

    @property
    def is_full(self) -> bool:
        """The batch should be committed before it takes more."""
        return (
            self._output_bytes >= MAX_BATCH_OUTPUT_BYTES
            or self._changes >= MAX_BATCH_CHANGES
            or self.counts.timers >= self.max_timers
        )

    @property
    def is_empty(self) -> bool:
        """Nothing happened that would have to be committed."""
        return self._read == 0

    def apply(self, received: ReceivedCommand) -> None:
        """Process one command; never raises for what a client or a machine did wrong."""
        record = received.record
        if record.offset <= self.watermarks.get(record.topic, -1):
            self.counts.skipped += 1
            return
        if record.timestamp > self.clock:
            self.clock = record.timestamp
        if self.clock >= self.timers.next_due:
            self._fire_due()
        failure = self._attempt(self._command, received)
        if failure is not None:
            self._bury(record, failure, received.reply_to, received.command_id)
        self.watermarks[record.topic] = record.offset
        self._read += 1

    def refuse(self, received: ReceivedCommand, code: ErrorCode, message: str) -> None:
        """Dead-letter a command without processing it, and say so to its client."""
        record = received.record
        if record.offset > self.watermarks.get(record.topic, -1):
            self._bury(record, Failure(code, message), received.reply_to, received.command_id)
            self.watermarks[record.topic] = record.offset
            self._read += 1

    def skip_expired(self, topic: str, first: int, next_offset: int, now: int) -> None:
        """Go on at `next_offset`: retention deleted the commands from `first` on; says so in a dead letter."""
        self.clock = max(self.clock, now)
        gone = CommandRecord(topic, self._partition, first, self.clock, None, None, ())
        message = (
            f"retention deleted the commands at offsets {first}..{next_offset - 1} before they were processed"
        )
        self._bury(gone, Failure(ErrorCode.COMMANDS_EXPIRED, message), None, None)
        self.watermarks[topic] = next_offset - 1
        self._read += 1

    def fire_due(self, now: int) -> None:
        """Fire the timers that are due by `now`, at most `max_timers` in the whole batch."""
        self.clock = max(self.clock, now)
        self._fire_due()

    def bury_due(self, now: int, code: ErrorCode, message: str) -> None:
        """Dead-letter the first of the timers that are due by `now`, without firing it."""
        self.clock = max(self.clock, now)
        for timer in self.timers.take_due(self.clock, 1):
            self.timers.claim(timer)
            self._bury_timer(timer, Failure(code, message))
            self._read += 1

    def changes(self) -> list[StateChange]:
        """All state changes, the lane's progress included."""
        self._repeats.flush()
        self.overlay.put(PROGRESS, (), self.progress())
        return self.overlay.changes()

    def progress(self) -> LaneProgress:
        """The lane's progress after the batch."""
        return LaneProgress(watermarks=self.watermarks, clock=self.clock, transactions=self._transactions + 1)

    def _fire_due(self) -> None:
        for timer in self.timers.take_due(self.clock, max(0, self.max_timers - self.counts.timers)):
            if self.is_full:
                return
            if not self.timers.claim(timer):
                continue
            self._read += 1
            self.counts.timers += 1
            failure = self._attempt(self._timer, timer)
            if failure is not None:
                self._bury_timer(timer, failure)

    def _attempt(self, step: Callable[[T], None], what: T) -> Failure | None:
        """Run `step(what)`; when it fails, none of its effects stay."""
        self.overlay.savepoint()
        outputs, next_due = len(self.outputs), self.timers.next_due
        try:
            step(what)
            return None
        except LaneLostError:
            raise
        except OutputTooLargeError as error:
            failure = Failure(ErrorCode.OUTPUT_TOO_LARGE, str(error))
        except Exception as error:
            message = f"{type(error).__name__} while processing; nothing of it took effect"
            failure = Failure(ErrorCode.INTERNAL_ERROR, message, traceback.format_exc())
            self.counts.internal_errors += 1
        self.overlay.rollback()
        del self.outputs[outputs:]
        self.timers.next_due = next_due
        return failure

    def _command(self, received: ReceivedCommand) -> None:
        record, family, envelope, error = received.record, received.family, received.envelope, received.error
        if envelope is None:
            if not isinstance(error, EnvelopeError):
                assert error is not None, "there is an envelope, or what is wrong with it"
                raise error
            self._bury(record, Failure(error.code, error.message), error.reply_to, error.command_id)
            return
        if received.owner != self._partition:
            self._forward(record, received.owner)
            return
        is_question = family.commands.by_type[envelope.type].is_question
        if not is_question:
            known = self._repeats.recall(family, envelope, self.clock)
            if known is not None:
                self.counts.repeated += 1
                self._reply(envelope.reply_to, envelope.command_id, known)
                return
        if error is None:
            request = Request(received.command, envelope.key, self.clock, envelope.reply_to)
            decision = family.machine.decide(request, self.overlay)
        elif isinstance(error, FieldError):
            decision = Decision().refuse(error.code, error.message)
        else:
            raise error
        answer = decision.answer
        self._take(family, envelope.key, decision, envelope.reply_to, envelope.command_id)
        if answer is not None and not is_question:
            self._repeats.remember(family, envelope.key, envelope.command_id, answer, self.clock)
        if answer is None or answer.ok:
            self.counts.applied += 1  # Also a question that waits.
        else:
            self.counts.refused += 1

    def _timer(self, timer: DueTimer) -> None:
        family = next((f for f in self._rules.families.values() if f.name == timer.family), None)
        if family is None:
            self._repeats.expire(timer, self.clock)
            return
        fired = FiredTimer(timer.key, timer.name, self.clock, timer.payload)
        self._take(family, timer.key, family.machine.fire(fired, self.overlay))

    def _take(
        self,
        family: Family,
        key: str,
        decision: Decision,
        reply_to: ReplyAddress | None = None,
        command_id: str | None = None,
    ) -> None:
        """Apply a decision; its answer goes to `reply_to`."""
        put = self.overlay.put
        self._changes += len(decision.changes)
        for table, at, record in decision.changes:
            if type(record) is bytes and len(record) > MAX_OUTPUT_BYTES:
                what = f"a record of {table.name}"
                raise OutputTooLargeError(_too_large(what, len(record), MAX_OUTPUT_BYTES))
            put(table, at, record)
        for name, due, payload in decision.timers:
            if due is None:
                self.timers.cancel(family.name, key, name)
            else:
                self.timers.schedule(family.name, key, name, due, payload)
        for topic, to, value in decision.outputs:
            self._emit(OutRecord(topic, self._partition, to.encode(), value))
        for topic, to, value in decision.messages:
            to_key = to.encode()
            self._emit(OutRecord(topic, partition_for(to_key, self._rules.partitions), to_key, value))
        for late in decision.late_answers:
            self._reply(late.reply_to, late.command_id, late.answer)
        if reply_to is not None and decision.answer is not None:
            self._reply(reply_to, command_id, decision.answer)
        # From here on nothing may fail: what is remembered or forgotten is not undone.
        for late in decision.late_answers:
            if late.is_remembered:
                self._repeats.remember(family, key, late.command_id, late.answer, self.clock)
        if decision.forgets:
            self._repeats.forget(family, key)
        counted = self.counts.by_key
        for what, number in decision.counts:
            counted[what, key] = counted.get((what, key), 0) + number

    def _emit(self, output: OutRecord, limit: int = MAX_OUTPUT_BYTES) -> None:
        size = len(output.key or b"") + len(output.value or b"")
        if size > limit:
            raise OutputTooLargeError(_too_large(f"a record for {output.topic}", size, limit))
        self._output_bytes += size
        self.outputs.append(output)

    def _forward(self, record: CommandRecord, owner: int) -> None:
        size = len(record.key or b"") + len(record.value or b"") + headers_size(record.headers)
        if size > MAX_FORWARDED_BYTES:
            raise OutputTooLargeError(
                f"a record to forward to the right partition would have {size} bytes; "
                f"at most {MAX_FORWARDED_BYTES} fit"
            )
        self._output_bytes += size
        self.outputs.append(forwarded_record(record, owner))
        self.counts.forwarded += 1

    def _reply(self, to: ReplyAddress | None, command_id: str | None, answer: Answer) -> None:
        if to is not None:
            self._emit(reply_record(to, command_id, answer), MAX_REPLY_BYTES)

    def _bury(
        self, record: CommandRecord, failure: Failure, reply_to: ReplyAddress | None, command_id: str | None
    ) -> None:
        """Dead-letter a record, and say so to its client when it can be reached."""
        code, message, trace = failure
        self.counts.dead_letters[code] = self.counts.dead_letters.get(code, 0) + 1
        topic = self._rules.full_name(record.topic)
        letter = dead_letter_record(record, topic, code, message, trace)
        self._output_bytes += len(letter.key or b"") + len(letter.value or b"") + headers_size(record.headers)
        self.outputs.append(letter)
        self._reply(reply_to, command_id, refusal(code, message))

    def _bury_timer(self, timer: DueTimer, failure: Failure) -> None:
        """A timer has no record of its own: its dead letter has the key, and names it in the message."""
        topic = next((t for t, f in self._rules.families.items() if f.name == timer.family), "")
        record = CommandRecord(topic, self._partition, -1, self.clock, timer.key.encode(), None, ())
        named = failure._replace(message=f"timer {timer.name}: {failure.message}")
        self._bury(record, named, None, None)


def _too_large(what: str, size: int, limit: int) -> str:
    return f"{what} would have {size} bytes; at most {limit} fit"
