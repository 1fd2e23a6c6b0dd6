"""Finds what keeps a batch from being written: the commands and timers of such a batch are committed one by one, and
the one that fails again is dead-lettered, so that one poison message costs itself and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schemas.errors import ErrorCode
from streams.batch import Batch, BatchCounts
from streams.ports import RecordsRefusedError
from streams.receiving import ReceivedCommand

Transact = Callable[[Callable[[Batch], None]], BatchCounts]


class UnwritableError(RecordsRefusedError):
    """What a batch has changed cannot be made into records: a bug, of which the cause tells."""


class _Poison(NamedTuple):
    suspect: tuple[str, int] | None
    """Topic and offset of a command; None for the timer that is due first."""
    code: ErrorCode
    message: str


class PoisonSearch:
    """The search of one lane. It outlives the reopenings of the lane that each failure takes."""

    def __init__(self, transact: Transact) -> None:
        """`transact(fill)` commits what `fill` does with a batch."""
        self._transact = transact
        self._suspects = 0
        self._poison: _Poison | None = None

    @property
    def is_on(self) -> bool:
        """Whether commands and timers have to be committed one by one."""
        return self._suspects > 0

    def begin(self, commands: int) -> None:
        """A batch of so many commands cannot be written; one of them, or a timer, is poison."""
        self._suspects = max(commands, 1)

    def apply(self, command: ReceivedCommand) -> BatchCounts:
        """Commit one command, of which no timer is due before."""

        def refuse(batch: Batch, code: ErrorCode, message: str) -> None:
            batch.refuse(command, code, message)

        record = command.record
        counts = self._alone((record.topic, record.offset), lambda batch: batch.apply(command), refuse)
        self._suspects = max(0, self._suspects - 1)
        return counts

    def fire_one(self, now: int) -> BatchCounts:
        """Commit one of the timers that are due by `now`."""

        def fire(batch: Batch) -> None:
            batch.max_timers = 1
            batch.fire_due(now)

        def bury(batch: Batch, code: ErrorCode, message: str) -> None:
            batch.bury_due(now, code, message)

        return self._alone(None, fire, bury)

    def end_of_timers(self) -> None:
        """All timers that were due are committed, and there was no command."""
        self._suspects = max(0, self._suspects - 1)

    def _alone(
        self,
        suspect: tuple[str, int] | None,
        act: Callable[[Batch], None],
        bury: Callable[[Batch, ErrorCode, str], None],
    ) -> BatchCounts:
        poison = self._poison

        def fill(batch: Batch) -> None:
            if poison is not None and poison.suspect == suspect:
                bury(batch, poison.code, poison.message)
            else:
                act(batch)

        try:
            counts = self._transact(fill)
        except UnwritableError as error:
            self._poison = _Poison(suspect, ErrorCode.INTERNAL_ERROR, str(error))
            raise
        except RecordsRefusedError:
            message = "the broker refused what would be written"
            self._poison = _Poison(suspect, ErrorCode.OUTPUT_TOO_LARGE, message)
            raise
        self._poison = None
        return counts
