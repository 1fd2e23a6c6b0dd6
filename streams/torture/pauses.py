"""How long something had to wait because of a fault."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from statistics import median

from streams.torture.schedule import FaultKind, PlannedFault


@dataclass
class FaultWindow:
    """The time of one fault: from when it struck until everything that it can hold up flows again."""

    fault: PlannedFault
    began_at: float
    undone_at: float | None = None
    """When the harm was taken back; what it left behind may go on."""
    closed_at: float | None = None
    longest_wait_s: float = 0.0
    """Of all that was finished in the window, however early it began to wait."""
    overlaps: bool = False
    """Another fault was in progress too, so the wait may be its doing."""
    flowed: set[int] = field(default_factory=set)

    @property
    def of_executor(self) -> bool:
        """It holds up the runs that are executed, and no other command."""
        return self.fault.target.startswith("executor")


class Pauses:
    """Attributes waits to the faults that are in progress. Times are of one monotonic clock; for any thread."""

    def __init__(self, partitions: int) -> None:
        self.windows: list[FaultWindow] = []
        self.longest_wait_s = 0.0
        """Of all commands, whenever it was."""
        self.done = [0] * partitions
        """How many commands of each partition have had their effect."""
        self._partitions = partitions
        self._open: list[FaultWindow] = []
        self._lock = threading.Lock()

    def begin(self, fault: PlannedFault, at: float) -> FaultWindow:
        """A fault strikes."""
        window = FaultWindow(fault, at)
        with self._lock:
            for other in self._open:
                other.overlaps = window.overlaps = True
            self._open.append(window)
            self.windows.append(window)
        return window

    def undone(self, window: FaultWindow, at: float) -> None:
        """The harm is taken back."""
        with self._lock:
            window.undone_at = at

    def command_done(self, partition: int, sent_at: float, at: float) -> None:
        """A command of this partition, sent then, has visibly had its effect now."""
        with self._lock:
            self.done[partition] += 1
            self.longest_wait_s = max(self.longest_wait_s, at - sent_at)
            self._done(partition, sent_at, at, of_executor=False)

    def run_went_on(self, partition: int, since: float, at: float, *, dispatched_at: float) -> None:
        """An executed run of this partition has its next event, the one after that of `since`."""
        with self._lock:
            # Only a run that was dispatched after the harm shows that it is over.
            self._done(partition, dispatched_at, at, of_executor=True, wait_s=at - since)

    def _done(
        self, partition: int, began: float, at: float, *, of_executor: bool, wait_s: float | None = None
    ) -> None:
        for window in list(self._open):
            if window.of_executor is not of_executor:
                continue
            window.longest_wait_s = max(window.longest_wait_s, at - began if wait_s is None else wait_s)
            if window.undone_at is not None and began > window.undone_at:
                window.flowed.add(partition)
                if len(window.flowed) == self._partitions:
                    window.closed_at = at
                    self._open.remove(window)

    @property
    def in_progress(self) -> list[FaultWindow]:
        """Faults whose windows are open."""
        with self._lock:
            return list(self._open)


@dataclass(frozen=True)
class KindSummary:
    """The faults of one kind."""

    kind: FaultKind
    count: int
    alone: int
    """How many had the time to themselves."""
    median_s: float | None
    """Longest wait of each of those, their median."""
    longest_s: float | None
    """The longest of those."""
    longest_overlapping_s: float | None
    """The longest while another fault was in progress too."""


def summarize(windows: list[FaultWindow]) -> list[KindSummary]:
    """By kind, in the order of `FaultKind`; kinds that did not come are left out."""
    summaries = []
    for kind in FaultKind:
        of_kind = [window for window in windows if window.fault.kind is kind]
        alone = [window.longest_wait_s for window in of_kind if not window.overlaps]
        others = [window.longest_wait_s for window in of_kind if window.overlaps]
        if of_kind:
            summaries.append(
                KindSummary(
                    kind,
                    len(of_kind),
                    len(alone),
                    median(alone) if alone else None,
                    max(alone, default=None),
                    max(others, default=None),
                )
            )
    return summaries
