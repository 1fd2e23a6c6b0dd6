"""The log side of a lane: a ring of transactional producers.

Why a ring of two: right after a commit, the same transactional id has to wait until the broker has written its
markers; a second id need not. Order holds, since `read_committed` readers stop at the first open transaction.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

from streams.healing import Healing
from streams.ports import LaneCluster, OutRecord, StateChange, TransactionalProducer
from streams.transaction_names import named, own_name

RING_SIZE = 2
"""Transactional ids of a lane; part of the layout, not a setting."""


class LaneLog:
    """The transactions of one lane. `fence` begins, `close` ends; in between one transaction at a time."""

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
        self._turn = self._produced = 0

    def fence(self) -> None:
        """Take over all transactional ids of the ring: ends the old owner and its open transactions.

        Two that open at the same time may have one id each in the end. So all take the ids over in the same order, and
        write with the first one first: only one of them can.
        """
        self.close()
        self._ring = [self.cluster.producer(index) for index in range(RING_SIZE)]
        self._opening = self._new_id()
        self._turn = self._produced = 0
        for producer in self._ring:
            producer.connect()
        for producer in self._ring:
            producer.fence()

    def heal(self) -> None:
        """End the transactions that hang after `fence`; see `streams.healing`."""
        healing = Healing(self._partition, self.cluster, self._ring)
        healing.end_what_hangs()
        if lost := healing.aborted_by_interruption():
            _, records = named(self._name(), lost)
            self._ring[self._turn].write(records, commit=True)

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord]) -> None:
        """Begin a transaction and produce all in it; there is at least one change."""
        self._produced += 1
        header, records = named(self._name(), outputs)
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

    def _name(self) -> str:
        return own_name(self._partition, self._turn, self._opening, self._produced)
