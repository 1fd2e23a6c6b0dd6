"""A lane's view of the in-memory Kafka. See `streams.ports.LaneCluster`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

from msgspec.structs import replace

from schemas.topics import EXCLUSIVE_TOPICS, REPLIES, STATE_CHANGELOG
from streams.ports import (
    FencedError,
    LaneLostError,
    LoggedRecord,
    OutRecord,
    Place,
    RecordsRefusedError,
    StateChange,
    TransactionalProducer,
)
from streams.transaction_names import TRANSACTION, names_of
from tests.simulation.memory_kafka import At, MemoryKafka, ProducerFencedError
from tests.simulation.partition_log import LogRecord, PartitionLog

_CHANGELOG = STATE_CHANGELOG.name
_RESTORE_CHUNK = 20
_CLOCKS_DIFFER_MS = 60_000


class Network(Protocol):
    """What lies between a lane and the cluster."""

    def call(self, name: str) -> None:
        """A call is about to reach the cluster, or its answer the lane; may wait, or raise `LaneLostError`."""

    def loses_request(self) -> bool:
        """Whether a request that changes something is lost: the lane is not told."""

    def loses_answer(self) -> bool:
        """Whether the answer to such a request is lost."""

    def later(self, work: Callable[[], None]) -> bool:
        """Whether `work`, a request that the lane gave up, reaches the cluster later."""


class PerfectNetwork:
    """Nothing gets lost, nothing takes time."""

    def call(self, name: str) -> None:
        """See `Network`."""

    def loses_request(self) -> bool:
        """See `Network`."""
        return False

    def loses_answer(self) -> bool:
        """See `Network`."""
        return False

    def later(self, work: Callable[[], None]) -> bool:
        """See `Network`."""
        return False


def lane_writer(partition: int, index: int) -> str:
    """The transactional id of a lane, without prefix."""
    return f"lane-{partition}-{index}"


def as_logged(at: At, record: LogRecord) -> LoggedRecord:
    """A record as lanes see it."""
    return LoggedRecord(Place(*at, record.offset), record.timestamp, record.key, record.value, record.headers)


class MemoryLaneCluster:
    """One lane's view."""

    def __init__(
        self,
        kafka: MemoryKafka,
        partition: int,
        network: Network,
        *,
        refuses: Callable[[OutRecord], bool] = lambda record: False,
        on_produce: Callable[[str], None] = lambda name: None,
    ) -> None:
        """`refuses(record)`: the broker does not take it. `on_produce(name)`: a transaction is about to begin."""
        self.kafka = kafka
        self.partition = partition
        self.network = network
        self.refuses = refuses
        self.on_produce = on_produce
        self._exclusive: list[At] = [(spec.name, partition) for spec in EXCLUSIVE_TOPICS]
        self._shared: list[At] = [(REPLIES.name, number) for number in range(kafka.partitions)]

    def producer(self, index: int) -> TransactionalProducer:
        """See `streams.ports.LaneCluster`."""
        return MemoryProducer(self, lane_writer(self.partition, index))

    def changelog_id(self) -> str:
        """See `streams.ports.LaneCluster`."""
        self.network.call("changelog_id")
        return self.kafka.topics[_CHANGELOG].topic_id

    def changelog_end(self) -> int:
        """See `streams.ports.LaneCluster`."""
        self.network.call("changelog_end")
        return self._log(_CHANGELOG).end

    def read_changelog(self, start: int, end: int) -> Iterator[tuple[list[StateChange], int]]:
        """See `streams.ports.LaneCluster`."""
        log = self._log(_CHANGELOG)
        position = max(start, log.start)
        while position < end:
            self.network.call("read_changelog")
            records, after = log.read(position, _RESTORE_CHUNK)
            if after == position:
                raise LaneLostError(f"the changelog stands still at {position} of {end}")
            position = after
            if records:
                yield [(record.key or b"", record.value) for record in records], records[-1].offset + 1

    def is_committed(self, position: int) -> bool:
        """See `streams.ports.LaneCluster`."""
        self.network.call("is_committed")
        log = self._log(_CHANGELOG)
        if not log.start <= position < log.end:
            return False
        records, _ = log.read(position, 1)
        return bool(records) and records[0].offset == position

    def command_range(self, topic: str) -> tuple[int, int]:
        """See `streams.ports.LaneCluster`."""
        self.network.call("command_range")
        log = self._log(topic)
        return log.start, log.end

    def hung(self) -> list[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        self.network.call("hung")
        return [self._unread(at)[0] for at in self._exclusive if self._is_unstable(at)]

    def unread(self, is_own: Callable[[frozenset[str]], bool]) -> list[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        self.network.call("unread")
        shared = [at for at in self._shared if self._is_unstable(at)]
        return [
            record
            for at in shared
            for number, record in enumerate(self._unread(at))
            if number == 0 or is_own(names_of(record))
        ]

    def is_visible(self, record: LoggedRecord) -> bool:
        """See `streams.ports.LaneCluster`."""
        self.network.call("is_visible")
        since = record.timestamp - _CLOCKS_DIFFER_MS
        names = names_of(record)
        return any(
            other.timestamp >= since and names & names_of(other)
            for at in self._exclusive + self._shared
            if at != record.place[:2]
            for other in self._read(at, 0, committed=True)
        )

    def tails(self) -> list[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        self.network.call("tails")
        found = []
        for at in self._exclusive:
            written = (record for record in reversed(self.kafka.log(at).records) if not record.is_marker)
            found += [as_logged(at, record) for record in islice(written, 1)]
        return found

    def records(self, place: Place, *, committed: bool) -> Iterator[LoggedRecord]:
        """See `streams.ports.LaneCluster`."""
        self.network.call("records")
        return iter(self._read(place[:2], place.offset, committed=committed))

    def close(self) -> None:
        """See `streams.ports.LaneCluster`."""

    def _is_unstable(self, at: At) -> bool:
        log = self.kafka.log(at)
        return log.stable < log.end

    def _unread(self, at: At) -> list[LoggedRecord]:
        """The records from the last stable offset on."""
        return self._read(at, self.kafka.log(at).stable, committed=False)

    def _read(self, at: At, offset: int, *, committed: bool) -> list[LoggedRecord]:
        log = self.kafka.log(at)
        records, _ = log.read(max(offset, log.start), log.end + 1, committed=committed)
        return [as_logged(at, record) for record in records]

    def _log(self, topic: str) -> PartitionLog:
        return self.kafka.log((topic, self.partition))


class MemoryProducer:
    """One transactional id. See `streams.ports.TransactionalProducer`."""

    def __init__(self, cluster: MemoryLaneCluster, writer: str) -> None:
        self._cluster = cluster
        self._kafka = cluster.kafka
        self._network = cluster.network
        self._writer = writer
        self._epoch = 0
        self._crashes = 0
        self._position: int | None = None
        self._is_fenced = False
        self._is_refused = False

    def connect(self) -> None:
        """See `streams.ports.TransactionalProducer`."""
        self._network.call("connect")

    def fence(self) -> None:
        """See `streams.ports.TransactionalProducer`."""
        self._network.call("fence")
        self._epoch = self._kafka.init(self._writer)
        self._crashes = self._kafka.crashes
        self._network.call("fenced")

    def produce(self, changes: Sequence[StateChange], outputs: Sequence[OutRecord], name: bytes) -> None:
        """See `streams.ports.TransactionalProducer`. As with a real client, that it is fenced shows at the commit."""
        self._cluster.on_produce(name.decode())
        self._network.call("produce")
        self._check_markers()
        self._position, self._is_fenced, self._is_refused = None, False, False
        partition = self._cluster.partition
        named = [OutRecord(_CHANGELOG, partition, *change) for change in changes]
        named[0] = replace(named[0], headers=[(TRANSACTION, name)])
        batches: dict[At, list[OutRecord]] = {(_CHANGELOG, partition): named}
        for output in outputs:
            batches.setdefault((output.topic, output.partition), []).append(output)
        try:
            self._kafka.begin(self._writer, self._epoch)
            for at, records in batches.items():
                self._network.call("produce to partition")
                self._send(at, records)
        except ProducerFencedError:
            self._is_fenced = True

    def commit(self) -> int:
        """See `streams.ports.TransactionalProducer`."""
        self._network.call("commit")
        if self._is_fenced:
            raise FencedError(f"commit: {self._writer} was fenced")
        if self._is_refused:
            self._end(commit=False)
            raise RecordsRefusedError("the broker refused a record")
        position = self._position
        if position is None:
            raise LaneLostError("nothing was produced")
        if self._network.loses_request():
            if not self._network.later(self._end_late):
                raise LaneLostError("commit: the request was lost")
            raise LaneLostError("commit: the request is late")
        self._end(commit=True)
        if self._network.loses_answer():
            raise LaneLostError("commit: the answer was lost")
        self._network.call("committed")
        return position

    def write(self, records: Iterable[OutRecord], *, commit: bool) -> None:
        """See `streams.ports.TransactionalProducer`."""
        self._network.call("write")
        self._check_markers()
        try:
            self._kafka.begin(self._writer, self._epoch)
            for record in records:
                self._network.call("write a record")
                at = (record.topic, record.partition)
                self._kafka.produce(
                    self._writer, self._epoch, at, record.key, record.value, record.headers or ()
                )
            self._network.call("written")
            self._kafka.end(self._writer, self._epoch, commit=commit)
        except ProducerFencedError as error:
            raise FencedError(f"end what hangs: {error}") from error
        self._network.call("write done")

    def close(self) -> None:
        """See `streams.ports.TransactionalProducer`. What is open stays open, until somebody fences."""
        self._network.call("close")

    def _check_markers(self) -> None:
        if self._crashes != self._kafka.crashes:
            raise LaneLostError("a connection to a broker broke: transaction markers may be lost")

    def _send(self, at: At, records: Sequence[OutRecord]) -> None:
        if any(self._cluster.refuses(record) for record in records):
            self._is_refused = True
            return
        for record in records:
            headers = record.headers or ()
            written = self._kafka.produce(self._writer, self._epoch, at, record.key, record.value, headers)
            if at == (_CHANGELOG, self._cluster.partition):
                self._position = written.offset + 1

    def _end(self, *, commit: bool) -> None:
        try:
            self._kafka.end(self._writer, self._epoch, commit=commit)
        except ProducerFencedError as error:
            raise FencedError(f"end: {error}") from error

    def _end_late(self) -> None:
        try:
            self._kafka.end(self._writer, self._epoch, commit=True)
        except ProducerFencedError:
            return
