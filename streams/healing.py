"""What a lane that opens does about transactions that hang: a broker lost their markers in a crash (decision 10).

It may lose them on some partitions and not on others. The first record of a transaction in a partition names it, so
that the next owner can tell how the others ended: what is visible anywhere is committed everywhere, and so is what the
same owner's next transaction followed; everything else is aborted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

from streams.ports import LaneCluster, LaneLostError, LoggedRecord, OutRecord, Place, TransactionalProducer
from streams.repairs import InterruptedRepairs, ending
from streams.transaction_names import is_before, names_of, writer

_log = logging.getLogger(__name__)

_MARKER_POLL_S = 0.05


_PartOf = tuple[str, int, frozenset[str]]
"""A transaction's part in a partition: topic, partition, names of the transaction."""


def _part(record: LoggedRecord) -> _PartOf:
    return record.place.topic, record.place.partition, names_of(record)


class _Hanging(NamedTuple):
    """What may hang: of each transaction and partition the first record."""

    exclusive: Sequence[LoggedRecord]
    """At the last stable offsets of the partitions that only the lane writes."""
    shared: Sequence[LoggedRecord]
    """The lane's in the partitions that others write too; it need not hang, it may be behind what does."""
    stable: frozenset[Place]
    """The last stable offsets of all of these partitions."""

    @property
    def candidates(self) -> Sequence[LoggedRecord]:
        return [*self.exclusive, *self.shared]


class Healing:
    """Ends what hangs in a lane's partitions, once, after all its transactional ids were fenced."""

    marker_patience_s: ClassVar[float] = 2.0
    """How long markers may take to arrive before they count as lost."""
    others_patience_s: ClassVar[float] = 20.0
    """How long another lane may take to end what it left hanging before a record of this one."""

    def __init__(
        self, partition: int, cluster: LaneCluster, producers: Sequence[TransactionalProducer]
    ) -> None:
        """`producers` are those of the lane's transactional ids, in the order of their index."""
        self._partition = partition
        self._cluster = cluster
        self._producers = producers
        self._ended: set[_PartOf] = set()
        self._interrupted = InterruptedRepairs(cluster)

    def end_what_hangs(self) -> None:
        """As committed what was committed, as aborted what was not."""
        hanging = self._await_markers(lambda found: bool(found.candidates))
        others_deadline = time.monotonic() + self.others_patience_s
        while hanging.candidates:
            # What hangs can hide that another one was committed: first those of which it shows.
            committed = next(filter(partial(self._was_committed, hanging), hanging.candidates), None)
            first = committed or self._aborted(hanging, time.monotonic() > others_deadline)
            if first is None:
                time.sleep(_MARKER_POLL_S)
                hanging = self._look()
                continue
            same = [
                other for other in hanging.candidates if other == first or names_of(other) & names_of(first)
            ]
            self._end(same, commit=committed is not None)
            ended = frozenset(record.place for record in same)
            hanging = self._await_markers(partial(_holds_up, ended))
            if _holds_up(ended, hanging):
                raise LaneLostError(
                    f"the last stable offset of {first.place.topic} stays at what was ended: "
                    "a transaction hangs on the broker"
                )

    def aborted_by_interruption(self) -> list[OutRecord]:
        """What an interrupted repair has aborted though it was committed elsewhere: to be written once more.

        Asked when nothing hangs any more.
        """
        lost = self._interrupted.lost()
        if lost:
            _log.warning(
                "lane %d: a repair was interrupted; %d records are written again", self._partition, len(lost)
            )
        return lost

    def _was_committed(self, hanging: _Hanging, record: LoggedRecord) -> bool:
        """Whether it is committed elsewhere, or its owner went on: which it does only after a commit."""
        names = names_of(record)
        if self._interrupted.names & names:
            return True
        behind = self._cluster.records(record.place, committed=False) if record in hanging.exclusive else ()
        return any(
            is_before(names, names_of(other), self._partition) for other in (*hanging.candidates, *behind)
        ) or self._cluster.is_visible(record)

    def _aborted(self, hanging: _Hanging, others_are_late: bool) -> LoggedRecord | None:
        """One of which nothing can come to light any more, given that none shows to be committed."""
        if not hanging.exclusive:
            return hanging.shared[0]
        hidden = {
            name
            for record in hanging.shared
            if record.place not in hanging.stable
            for name in names_of(record)
        }
        for first in hanging.exclusive:
            for record in self._cluster.records(first.place, committed=False):
                hidden |= names_of(record) - names_of(first)
        for record in hanging.candidates:
            if record.place in hanging.stable and hidden.isdisjoint(names_of(record)):
                return record
        # Another lane has to end what hides the rest.
        return hanging.exclusive[0] if others_are_late else None

    def _end(self, records: Sequence[LoggedRecord], *, commit: bool) -> None:
        """End a transaction in the partitions where it hangs, given by its first record in each."""
        _log.warning(
            "lane %d: transaction markers are missing at %s; ending them as %s",
            self._partition,
            ", ".join(f"{place.topic} {place.partition}:{place.offset}" for place, *_ in records),
            "committed" if commit else "aborted",
        )
        for producer in self._writers(records):
            producer.write([ending(record, commit=commit) for record in records], commit=commit)
        self._ended.update(map(_part, records))

    def _await_markers(self, missing: Callable[[_Hanging], bool]) -> _Hanging:
        """What hangs; asked again while `missing(found)`, as long as markers may be under way."""
        deadline = time.monotonic() + self.marker_patience_s
        while missing(found := self._look()) and time.monotonic() < deadline:
            time.sleep(_MARKER_POLL_S)
        return found

    def _look(self) -> _Hanging:
        exclusive = self._cluster.hung()
        unread = self._cluster.unread(self._is_own)
        stable = {record.place[:2]: record.place for record in [*reversed(unread), *exclusive]}
        # What was ended stays unread behind what others left hanging, and so do the empty records that ended it.
        first = {_part(record): record for record in reversed(unread) if self._is_own(names_of(record))}
        shared = [record for part, record in reversed(first.items()) if part not in self._ended]
        return _Hanging(exclusive, shared, frozenset(stable.values()))

    def _is_own(self, names: frozenset[str]) -> bool:
        return writer(names, self._partition) is not None

    def _writers(self, records: Sequence[LoggedRecord]) -> list[TransactionalProducer]:
        """The producer whose id wrote a transaction; all of them when that is not to be told."""
        indexes = {writer(names_of(record), self._partition) for record in records} - {None}
        return [self._producers[index] for index in indexes if index is not None] or list(self._producers)


def _holds_up(ended: frozenset[Place], found: _Hanging) -> bool:
    return not ended.isdisjoint(found.stable)
