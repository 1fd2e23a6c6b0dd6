"""Kafka in memory: topics, and a coordinator of transactions with epochs and fencing.

What it does is settled by the suite `test_cluster_contract.py`, which runs on a real broker too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from schemas.envelope import Headers
from schemas.topics import TOPICS
from tests.simulation.partition_log import LogRecord, PartitionLog

At = tuple[str, int]
"""(topic without prefix, partition)."""


class ProducerFencedError(Exception):
    """The transactional id has a newer epoch."""


@dataclass
class Topic:
    """A topic, as it was made."""

    topic_id: str
    partitions: list[PartitionLog]
    is_append_time: bool


@dataclass
class Transaction:
    """What the coordinator knows of a transactional id."""

    writer: str
    epoch: int = 0
    is_open: bool = False
    commits: bool = False
    """What was decided, once it is not open any more."""
    partitions: dict[At, None] = field(default_factory=dict)
    pending: dict[At, None] = field(default_factory=dict)
    """Where the marker is still to be written."""
    number: int = 0
    """Of the transaction."""
    waiting: int = 0
    """Calls that wait for its markers to begin the next one."""
    began_at: float = 0.0


class MemoryKafka:
    """A cluster of one broker."""

    def __init__(
        self,
        partitions: int,
        *,
        now: Callable[[], int],
        wait: Callable[[], None] | None = None,
        send_marker: Callable[[Callable[[], None], bool], None] = lambda write, commits: write(),
        elapsed: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`now()`: the broker's clock in ms; `elapsed()`: seconds that passed, for time-outs.

        `wait()` lets time pass for a call that has to wait for markers. `send_marker(write, commits)` calls `write`
        sooner or later.
        """
        self.partitions = partitions
        self.now = now
        self.elapsed = elapsed
        self._wait = wait
        self._send_marker = send_marker
        self._ids = itertools.count(1)
        self.topics: dict[str, Topic] = {}
        self.transactions: dict[str, Transaction] = {}
        self.crashes = 0
        """How often the broker died; its clients notice that a connection broke."""
        self.on_readable: Callable[[str, int], None] = lambda topic, partition: None
        """Called when a partition may have more for readers."""
        for name in TOPICS:
            self._make(name)

    def log(self, at: At) -> PartitionLog:
        """The log of a partition."""
        return self.topics[at[0]].partitions[at[1]]

    def make_anew(self) -> None:
        """Delete all topics and make them again: other ids, nothing in them."""
        for name in list(self.topics):
            self._make(name)
        for transaction in self.transactions.values():
            transaction.is_open = False
            transaction.partitions.clear()
            transaction.pending.clear()

    def append(
        self,
        at: At,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        writer: str = "client",
        timestamp: int | None = None,
    ) -> LogRecord:
        """A plain producer's record."""
        record = self.log(at).append(self._time(at[0], timestamp), key, value, headers, writer)
        self.on_readable(*at)
        return record

    def init(self, writer: str) -> int:
        """`InitProducerId`: take a transactional id over; returns its epoch. An open transaction is aborted."""
        transaction = self.transactions.setdefault(writer, Transaction(writer))
        while transaction.is_open or transaction.pending:
            if transaction.is_open:
                transaction.epoch += 1
                self._decide(transaction, commit=False)
            # Meanwhile the owner may begin another one, as long as it is not fenced.
            self._until_marked(transaction)
        transaction.epoch += 1
        return transaction.epoch

    def begin(self, writer: str, epoch: int) -> None:
        """The first `AddPartitionsToTxn`: waits until the last transaction has its markers."""
        transaction = self._of(writer, epoch)
        transaction.waiting += 1
        try:
            self._until_marked(transaction)
        finally:
            transaction.waiting -= 1
        self._of(writer, epoch)
        transaction.is_open = True
        transaction.number += 1
        transaction.began_at = self.elapsed()
        transaction.partitions.clear()

    def produce(
        self,
        writer: str,
        epoch: int,
        at: At,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp: int | None = None,
    ) -> LogRecord:
        """A record of the open transaction."""
        transaction = self._of(writer, epoch)
        if not transaction.is_open:
            raise ProducerFencedError(f"{writer} has no open transaction")
        transaction.partitions[at] = None
        time = self._time(at[0], timestamp)
        return self.log(at).append(time, key, value, headers, writer, in_transaction=True)

    def end(self, writer: str, epoch: int, *, commit: bool) -> None:
        """`EndTxn`: decide; the markers follow. A repeat of the same decision is fine."""
        transaction = self._of(writer, epoch)
        if transaction.is_open:
            self._decide(transaction, commit=commit)
        elif transaction.commits is not commit:
            raise ProducerFencedError(f"{writer} ended the other way")

    def expire(self, older_than_s: float) -> None:
        """Abort the transactions that are open for longer, and fence their producers."""
        for transaction in self.transactions.values():
            if transaction.is_open and self.elapsed() - transaction.began_at > older_than_s:
                transaction.epoch += 1
                self._decide(transaction, commit=False)

    def lose_markers(self, lost: Callable[[Transaction, At], bool]) -> list[tuple[Transaction, At]]:
        """The broker dies with markers under way: some of them are never written, and nobody notices.

        Returns which; all others are written at once.
        """
        gone = []
        self.crashes += 1
        for transaction in self.transactions.values():
            for at in list(transaction.pending):
                if lost(transaction, at):
                    del transaction.pending[at]
                    gone.append((transaction, at))
                else:
                    self._mark(transaction, transaction.number, at)
        return gone

    def write_markers(self) -> None:
        """Write all markers that are under way."""
        for transaction in self.transactions.values():
            for at in list(transaction.pending):
                self._mark(transaction, transaction.number, at)

    def _of(self, writer: str, epoch: int) -> Transaction:
        transaction = self.transactions[writer]
        if transaction.epoch != epoch:
            raise ProducerFencedError(f"{writer} is at epoch {transaction.epoch}, not {epoch}")
        return transaction

    def _decide(self, transaction: Transaction, *, commit: bool) -> None:
        transaction.is_open = False
        transaction.commits = commit
        transaction.pending = dict(transaction.partitions)
        number = transaction.number
        for at in transaction.partitions:
            write = partial(self._mark, transaction, number, at)
            self._send_marker(write, commit)

    def _mark(self, transaction: Transaction, number: int, at: At) -> None:
        if transaction.number == number and at in transaction.pending:
            del transaction.pending[at]
            self.log(at).mark(self.now(), transaction.writer, commit=transaction.commits)
            self.on_readable(*at)

    def _until_marked(self, transaction: Transaction) -> None:
        while transaction.pending:
            if self._wait is None:
                self.write_markers()
            else:
                self._wait()

    def _make(self, name: str) -> None:
        spec = TOPICS[name]
        logs: Iterable[PartitionLog] = (PartitionLog() for _ in range(self.partitions))
        append_time = spec.settings.get("message.timestamp.type") == "LogAppendTime"
        self.topics[name] = Topic(f"topic-{next(self._ids)}", list(logs), append_time)

    def _time(self, topic: str, given: int | None) -> int:
        return self.now() if given is None or self.topics[topic].is_append_time else given
