"""The log side of a lane: a ring of transactional producers, and what is done about transactions that hang.

Why a ring of two: right after a commit, the same transactional id has to wait until the broker has written its
markers; a second id need not. Order holds, since `read_committed` readers stop at the first open transaction.

Why names: a broker can lose the markers of a transaction in a crash, on some partitions and not on others. The
first record of a transaction in a partition names the transaction, so that the next owner can tell how the others
ended: what is visible anywhere is committed everywhere, and so is what the same owner's next transaction followed;
everything else is aborted.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

from streams.ports import (
    HungTransaction,
    LaneCluster,
    LaneLostError,
    OutRecord,
    StateChange,
    TransactionalProducer,
)
from streams.transaction_names import is_before, named, own_name, writer

RING_SIZE = 2
"""Transactional ids of a lane; part of the layout, not a setting."""

_log = logging.getLogger(__name__)

_MARKER_POLL_S = 0.05
_MAX_HEALS = 100


class LaneLog:
    """The transactions of one lane. `fence` begins, `close` ends; in between one transaction at a time."""

    marker_patience_s: ClassVar[float] = 2.0
    """How long markers may take to arrive before they count as lost."""

    def __init__(
        self,
        partition: int,
        cluster: LaneCluster,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        """`new_id` makes the name of an opening."""
        self.cluster = cluster
        """To read the lane's partitions."""
        self._partition = partition
        self._new_id = new_id
        self._ring: list[TransactionalProducer] = []
        self._opening = ""
        self._turn = 0
        self._produced = 0

    def fence(self) -> None:
        """Take over all transactional ids of the ring: ends the old owner and its open transactions."""
        self.close()
        self._ring = [self.cluster.producer(index) for index in range(RING_SIZE)]
        self._opening = self._new_id()
        self._produced = 0
        for producer in self._ring:
            producer.connect()
        for producer in self._ring:
            producer.fence()

    def heal(self) -> None:
        """End the transactions that hang after `fence`: as committed what was committed, as aborted what was not."""
        hung = self._await_markers(bool)
        for _ in range(_MAX_HEALS):
            if not hung:
                self._heal_shared()
                return
            # What hangs can hide that another one was committed: first those of which it shows.
            committed = next(filter(self._was_committed, hung), None)
            first = committed or hung[0]
            same = [other for other in hung if other == first or other.names & first.names]
            self._end(same, commit=committed is not None)
            hung = self._await_markers(partial(_has, first))
            if first in hung:
                break
        raise LaneLostError(
            f"the last stable offset of {sorted({at.place.topic for at in hung})} stays behind the end: "
            "a transaction hangs on the broker"
        )

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord]) -> None:
        """Begin a transaction and produce all in it; there is at least one change."""
        self._produced += 1
        name = own_name(self._partition, self._turn, self._opening, self._produced)
        header, records = named(name, outputs)
        self._ring[self._turn].produce(changes, records, header)

    def commit(self) -> int:
        """Commit what was produced; see `streams.ports.TransactionalProducer`. The other id is next."""
        producer = self._ring[self._turn]
        self._turn = (self._turn + 1) % RING_SIZE
        return producer.commit()

    def close(self) -> None:
        """Release the clients; what is in flight is dropped."""
        for producer in self._ring:
            producer.close()
        self._ring = []
        self.cluster.close()

    def _heal_shared(self) -> None:
        """The same where other lanes write too. What is unread there need not hang: it may be behind what does."""
        deadline = time.monotonic() + self.marker_patience_s
        unread = self.cluster.unread(self._is_own)
        while unread and time.monotonic() < deadline:
            time.sleep(_MARKER_POLL_S)
            still = self.cluster.unread(self._is_own)
            unread = [transaction for transaction in unread if transaction in still]
        for transaction in unread:
            self._end([transaction], commit=self.cluster.is_visible(transaction))

    def _was_committed(self, transaction: HungTransaction) -> bool:
        """Whether it is committed elsewhere, or its owner went on: which it does only after a commit."""
        return self.cluster.is_visible(transaction) or any(
            is_before(transaction.names, others, self._partition)
            for others in self.cluster.names_behind(transaction.place)
        )

    def _end(self, transactions: Sequence[HungTransaction], *, commit: bool) -> None:
        """End a transaction in the partitions where it hangs."""
        _log.warning(
            "lane %d: transaction markers are missing at %s; ending them as %s",
            self._partition,
            ", ".join(f"{at.place.topic} {at.place.partition}:{at.place.offset}" for at in transactions),
            "committed" if commit else "aborted",
        )
        for producer in self._writers(transactions):
            producer.end_hung([at.place[:2] for at in transactions], commit=commit)

    def _await_markers(self, missing: Callable[[list[HungTransaction]], bool]) -> list[HungTransaction]:
        """What hangs; asked again while `missing(found)`, as long as markers may be under way."""
        deadline = time.monotonic() + self.marker_patience_s
        while missing(found := self.cluster.hung()) and time.monotonic() < deadline:
            time.sleep(_MARKER_POLL_S)
        return found

    def _is_own(self, names: frozenset[str]) -> bool:
        return writer(names, self._partition) is not None

    def _writers(self, transactions: Sequence[HungTransaction]) -> list[TransactionalProducer]:
        """The producer whose id wrote a transaction; all of them when that is not to be told."""
        indexes = {writer(transaction.names, self._partition) for transaction in transactions} - {None}
        return [self._ring[index] for index in indexes if index is not None] or self._ring


def _has(transaction: HungTransaction, hung: list[HungTransaction]) -> bool:
    return transaction in hung
