"""The consumer of a simulated worker, instead of Faust's: it has the duties of `streams.faust_adapter`.

It tags chunks with predecessor and epoch, seeks, and fetches only what lanes want. Between the fetch and the lane
lies a stream in which chunks may be late, lost, doubled or overtaken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from streams.inbox import Chunk
from streams.ports import CommandRecord
from tests.simulation.partition_log import LogRecord, OffsetOutOfRangeError

if TYPE_CHECKING:
    from tests.simulation.process import Process

_MAX_CHUNK = 12
_POLL_S = 5.0

At = tuple[str, int]


class Assignment:
    """The partitions that the group gave; as aiokafka's, it ends with the next rebalance."""

    def __init__(self, partitions: set[int]) -> None:
        self.partitions = partitions
        self.is_active = True


class SimulatedConsumer:
    """Implements `streams.lane_host.Positions`."""

    def __init__(self, process: Process, topics: tuple[str, ...]) -> None:
        self._process = process
        self._world = process.world
        self._random = process.world.random
        self._topics = topics
        self._assignment: Assignment | None = None
        self._positions: dict[At, int] = {}
        self._delivered: dict[At, int] = {}
        self._epochs: dict[At, int] = {}
        self.rereads = 0
        """How often a lane that was being read sought again."""
        self.reasons = 0
        """What makes a lane seek again: chunks that were lost or disordered, offsets that are gone."""

    def assign(self, partitions: set[int]) -> None:
        """The group gave these partitions."""
        self._assignment = Assignment(partitions)
        self._delivered = {}
        self.tell()

    def revoke(self) -> None:
        """The group takes all partitions away."""
        if self._assignment is not None:
            self._assignment.is_active = False

    async def seek(self, partition: int, offsets: Mapping[str, int]) -> Mapping[str, int]:
        """See `streams.lane_runner.Seeker`."""
        await self._world.moment()
        sought = {}
        for topic, offset in offsets.items():
            at = (topic, partition)
            assignment = self._assignment
            if assignment is None or not assignment.is_active or partition not in assignment.partitions:
                continue
            self._positions[at] = offset
            self._delivered[at] = offset - 1
            if self._process.host._runners[partition].inbox.head(topic) is not None:
                self.rereads += 1
            sought[topic] = self._epochs[at] = self._epochs.get(at, 0) + 1
        self.tell()
        await self._world.moment()
        return sought

    def delivered(self, topic: str, partition: int) -> int | None:
        """See `streams.lane_host.Positions`."""
        return self._delivered.get((topic, partition))

    def end(self, topic: str, partition: int) -> int | None:
        """See `streams.lane_host.Positions`."""
        return self._world.kafka.log((topic, partition)).end

    async def run(self) -> None:
        """Fetch as long as the process lives."""
        host = self._process.host
        while True:
            await self._process.until_thawed()
            host.changed.clear()
            chunks = self._fetch() if not self._world.is_broker_away else []
            for chunk, partition in chunks:
                await self._hand_over(chunk, partition)
            if not chunks:
                await self._until_news()

    def _fetch(self) -> list[tuple[Chunk, int]]:
        assignment, host = self._assignment, self._process.host
        chunks: list[tuple[Chunk, int]] = []
        if assignment is None or not assignment.is_active:
            return chunks
        for partition in sorted(assignment.partitions):
            for topic in self._topics:
                at = (topic, partition)
                previous = self._delivered.get(at)
                if previous is None or not host.wants(topic, partition):
                    continue
                log = self._world.kafka.log(at)
                try:
                    limit = self._random.randint(1, _MAX_CHUNK)
                    found, self._positions[at] = log.read(self._positions[at], limit)
                except OffsetOutOfRangeError:
                    self.reasons += 1
                    del self._delivered[at]
                    host.out_of_range(topic, partition)
                    continue
                if found:
                    records = [command(topic, partition, record) for record in found]
                    size = sum(len(record.value or b"") for record in records)
                    chunks.append((Chunk(topic, previous, self._epochs[at], records, size), partition))
                    self._delivered[at] = found[-1].offset
        return chunks

    async def _hand_over(self, chunk: Chunk, partition: int) -> None:
        """The way through the stream."""
        rates, random, world = self._world.rates, self._random, self._world
        if random.random() < rates.chunk_lost:
            first, last = chunk.records[0].offset, chunk.records[-1].offset
            self.reasons += 1
            world.note(self._process.name, f"lost a chunk of {chunk.topic} {partition}: {first}..{last}")
            return
        if random.random() < rates.chunk_again:
            self._later(random.choice([0.01, 0.5, 8.0]), chunk, partition)
        if random.random() < rates.chunk_late:
            self.reasons += 1
            self._later(random.choice([0.002, 0.05, 1.0]), chunk, partition)
            return
        await world.moment()
        self._route(chunk, partition)

    def _later(self, delay: float, chunk: Chunk, partition: int) -> None:
        self._world.loop.call_later(delay, self._route, chunk, partition)

    def _route(self, chunk: Chunk, partition: int) -> None:
        process = self._process
        if process.is_dead:
            return
        if process.is_frozen:
            self.reasons += 1
            self._later(0.1, chunk, partition)
        else:
            process.host.route(partition, chunk)

    async def _until_news(self) -> None:
        changed = self._process.host.changed
        # By far cheaper than a wait with a time-out, which makes a task.
        timer = self._world.loop.call_later(_POLL_S, changed.set)
        await changed.wait()
        timer.cancel()

    def tell(self) -> None:
        """There may be something to fetch."""
        self._process.host.changed.set()


def command(topic: str, partition: int, record: LogRecord) -> CommandRecord:
    """A record as a consumer hands it on."""
    return CommandRecord(
        topic, partition, record.offset, record.timestamp, record.key, record.value, record.headers
    )
