"""Everything that runlane needs of the private parts of Faust and aiokafka. Nothing else touches them.

Faust keeps group membership, assignment, agents, supervision and the web server. Fetching is handed on in
chunks; positions, emptiness and offsets come from the lanes (`LaneRouter`). The versions are checked at start,
since each override below leans on code that another version may change.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Protocol

import faust
from aiokafka import TopicPartition as AiokafkaPartition
from aiokafka.consumer.group_coordinator import LeaveGroupRequest
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.structs import OffsetAndMetadata
from faust.events import Event
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types.tuples import TP
from mode.utils.futures import notify

from streams import fetched_records
from streams.inbox import Chunk
from streams.lane_records import headers_size
from streams.ports import CommandRecord
from streams.user_errors import UserError

EXACT_VERSIONS = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}

_COMMIT_PATIENCE_S = 3.0
_LEAVE_PATIENCE_S = 5.0
_FETCH_PATIENCE_S = 0.1
_NO_ROOM_POLL_S = 0.25
_CONNECT_AGAIN_S = 0.5
_ASK_AGAIN_S = 0.25


class LaneRouter(Protocol):
    """What the driver asks of the lanes. All but `quiesce` return at once; called in the event loop."""

    changed: asyncio.Event
    """Set when a lane may have begun to want commands."""

    def wants(self, topic: str, partition: int) -> bool:
        """Whether the lane is open and has room for more commands of this topic."""

    def watermarks(self) -> Mapping[tuple[str, int], int]:
        """(topic, partition) -> offset of the last command that is done, for every owned lane that is open."""

    def out_of_range(self, topic: str, partition: int) -> None:
        """The log does not reach down to the position that was sought."""

    async def quiesce(self) -> None:
        """Finish the batches in flight, drop what waits, and take nothing more until the next assignment."""


def check_versions() -> None:
    """Raise `UserError` unless exactly the versions are installed that the overrides were written for."""
    wrong = [
        f"{name} {found}, not {needed}"
        for name, needed in EXACT_VERSIONS.items()
        if (found := importlib.metadata.version(name)) != needed
    ]
    if wrong:
        raise UserError(
            f"The Faust adapter needs exact versions, but found {'; '.join(wrong)}.",
            "install runlane in an environment of its own, with its pinned dependencies",
        )


class LaneConsumerThread(driver.AIOKafkaConsumerThread):
    """The consumer's own thread: fetch, seek and tag are serialised here, so that a tag is never wrong."""

    def __init__(self, consumer: LaneConsumer, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._lanes_app: LaneApp = consumer.app
        # What was delivered belongs to one assignment object of aiokafka: nothing leaks into a new generation.
        self._assignment_seen: Any = None
        self._delivered: dict[TP, int] = {}
        self._epochs: dict[TP, int] = {}

    def _create_worker_consumer(self, transport: Any) -> Any:
        fetched_records.install(self._lanes_app.short_names)
        consumer = super()._create_worker_consumer(transport)
        # Faust fixes the wait at 1,500 ms: a partition whose chunk was just taken waits for the fetch in flight.
        consumer._fetch_max_wait_ms = self._lanes_app.fetch_wait_ms
        # Faust reads committed records only with its own exactly_once.
        consumer._isolation_level = "read_committed"
        _connect_patiently(consumer._client)
        return consumer

    async def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group; dead predecessors are taken out first, or everybody waits for their session to expire."""
        predecessors, self._lanes_app.predecessors = self._lanes_app.predecessors, ()
        await self.call_thread(self._leave_for, predecessors)
        await super().subscribe(topics)

    async def seek_tagged(self, offsets: Mapping[TP, int]) -> dict[TP, int]:
        """Seek in this thread (Faust mutates aiokafka from the main thread); returns the epochs of what was sought."""
        assignment = self._sync()
        sought: dict[TP, int] = {}
        for tp, offset in offsets.items():
            at = AiokafkaPartition(tp.topic, tp.partition)
            if assignment is None or not assignment.active or at not in assignment.tps:
                continue
            self._consumer.seek(at, offset)
            self._delivered[tp] = offset - 1
            sought[tp] = self._epochs[tp] = self._epochs.get(tp, 0) + 1
        return sought

    def delivered(self, tp: TP) -> int | None:
        """Offset of the last record handed out, or the sought one - 1."""
        return self._delivered.get(tp)

    async def _fetch_records(
        self,
        consumer: Any,
        active_partitions: Any,
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> dict[TP, Chunk]:
        try:
            fetched = await super()._fetch_records(
                consumer, active_partitions, timeout=timeout, max_records=max_records
            )
        except NoOffsetForPartitionError:
            # No group offset, and the lane has not sought yet.
            return {}
        except OffsetOutOfRangeError as error:
            # A reset to the earliest offset would look like a hole, and expired commands would vanish silently.
            self._out_of_range(error.args[0])
            return {}
        self._sync()
        chunks: dict[TP, Chunk] = {}
        # No await between the fetch and the tag.
        for at, records in (fetched or {}).items():
            tp = TP(at.topic, at.partition)
            previous = self._delivered.get(tp)
            if previous is None or not records:
                continue
            chunks[tp] = self._chunk(tp, previous, records)
            self._delivered[tp] = records[-1].offset
        return chunks

    def _chunk(self, tp: TP, previous: int, commands: Sequence[CommandRecord]) -> Chunk:
        size = sum([len(command.value or b"") for command in commands])
        size += headers_size([header for command in commands for header in command.headers])
        return Chunk(commands[0].topic, previous, self._epochs[tp], commands, size)

    def _out_of_range(self, partitions: Iterable[Any]) -> None:
        self._sync()
        for at in partitions:
            tp = TP(at.topic, at.partition)
            if self._delivered.pop(tp, None) is not None:
                name = self._lanes_app.short_names[tp.topic]
                self.parent_loop.call_soon_threadsafe(self._lanes_app.lanes.out_of_range, name, tp.partition)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        """Group offsets are only a hint: never crash the worker over them (Faust does), never wait for long."""
        assignment = self._sync()
        if assignment is None or not assignment.active:
            return False
        commits: dict[Any, Any] = {}
        for tp, offset in offsets.items():
            at = AiokafkaPartition(tp.topic, tp.partition)
            if at not in assignment.tps:
                continue
            if self._delivered.get(tp) == offset - 1:
                # All that was delivered is done: step over trailing markers, so that lag shows 0.
                state = assignment.state_value(at)
                if state is not None and state.has_valid_position:
                    offset = max(offset, state.position)
            commits[at] = OffsetAndMetadata(offset, "")
            self.tp_last_committed_at[tp] = monotonic()
        if not commits:
            return False
        try:
            await asyncio.wait_for(self._consumer.commit(commits), _COMMIT_PATIENCE_S)
        except (KafkaError, TimeoutError) as error:
            self.log.info("group offsets not committed this time: %r", error)
            return False
        return True

    def _sync(self) -> Any:
        subscription = self._consumer._subscription.subscription
        assignment = subscription.assignment if subscription is not None else None
        if assignment is not self._assignment_seen:
            self._assignment_seen = assignment
            self._delivered = {}
        return assignment

    async def _leave_for(self, predecessors: Sequence[str]) -> None:
        coordinator = self._consumer._coordinator
        for member in predecessors:
            try:
                await asyncio.wait_for(coordinator.ensure_coordinator_known(), _LEAVE_PATIENCE_S)
                request = LeaveGroupRequest(coordinator.group_id, member)
                await asyncio.wait_for(coordinator._send_req(request), _LEAVE_PATIENCE_S)
            except (KafkaError, TimeoutError) as error:
                # At worst the group waits for its session to expire.
                self.log.info("%s could not be taken out of the group: %r", member, error)


class LaneConsumer(driver.Consumer):
    """The consumer as the event loop sees it."""

    app: LaneApp

    def _new_consumer_thread(self) -> LaneConsumerThread:
        return LaneConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def seek_tagged(self, offsets: Mapping[TP, int]) -> dict[TP, int]:
        """Seek; returns the epochs of the partitions that are still assigned."""
        sought: dict[TP, int] = await self._thread.call_thread(self._thread.seek_tagged, offsets)
        return sought

    def delivered(self, tp: TP) -> int | None:
        """Offset of the last record handed out, or the sought one - 1."""
        delivered: int | None = self._thread.delivered(tp)
        return delivered

    async def perform_seek(self) -> None:
        """Faust would seek to the group's offsets; each lane seeks to its watermark when it is open."""

    async def wait_empty(self) -> None:
        """Called on revoke, stop and shutdown: the lanes know what is in flight."""
        await self.app.lanes.quiesce()
        await self.commit_and_end_transactions()

    def ack(self, message: Any) -> bool:
        """Faust's bookkeeping of single offsets does not fit chunks: only forget the message."""
        if message.acked:
            return False
        message.acked = True
        self._unacked_messages.discard(message)
        notify(self._waiting_for_ack)
        return True

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> list[TP]:
        tps = [self.app.tp(*at) for at in self.app.lanes.watermarks()]
        return [tp for tp in tps if topics is None or tp in topics or tp.topic in topics]

    def _new_offset(self, tp: TP) -> int | None:
        watermark = self.app.lanes.watermarks().get((self.app.short_names[tp.topic], tp.partition), -1)
        return None if watermark < 0 else watermark + 1

    async def _drain_messages(self, fetcher: Any) -> None:
        """One event for each fetched chunk, instead of one for each record."""
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await self._drain_once(fetcher)
        except self.consumer_stopped_errors:
            if not self.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.app.should_stop:
                raise

    async def _drain_once(self, fetcher: Any) -> None:
        if not self.flow_active:
            await self.wait(self.can_resume_flow, timeout=1.0)
            return
        lanes, names = self.app.lanes, self.app.short_names
        wanted = {tp for tp in self._get_active_partitions() if lanes.wants(names[tp.topic], tp.partition)}
        if not wanted:
            # An empty set would mean "all" to aiokafka.
            lanes.changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(lanes.changed.wait(), _NO_ROOM_POLL_S)
            return
        chunks = await self._getmany({AiokafkaPartition(*tp) for tp in wanted}, _FETCH_PATIENCE_S)
        for tp, chunk in chunks.items():
            # Fetched over a rebalance: keep it, its epoch says whether it is stale.
            while self._held() and not fetcher._stopped.is_set():
                await self.wait(self.can_resume_flow, timeout=1.0)
            await self.callback(self._message(tp, chunk))

    def _held(self) -> bool:
        return bool(self.suspend_flow.is_set() or not self.app.flow_control.is_active())

    def _message(self, tp: TP, chunk: Chunk) -> Any:
        last = chunk.records[-1]
        # Faust drops messages of another generation than the present one; whether a chunk is stale, its epoch says.
        generation = self.app.consumer_generation_id
        return driver.ConsumerMessage(
            tp.topic,
            tp.partition,
            last.offset,
            last.timestamp / 1000.0,
            1,
            [],
            None,
            chunk,
            None,
            tp=tp,
            generation_id=generation,
        )

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's stall detector looks at its own bookkeeping; the lanes have a watchdog instead."""


class PatientProducer(driver.Producer):
    """Faust's own producer: nothing is sent by it, but the worker starts it."""

    def _new_producer(self, transactional_id: str | None = None) -> Any:
        producer = super()._new_producer(transactional_id)
        _connect_patiently(producer.client)
        return producer


class LaneTransport(driver.Transport):
    """Faust's aiokafka transport with the consumer and the producer above."""

    Consumer = LaneConsumer
    Producer = PatientProducer


def _connect_patiently(client: Any) -> None:
    """Have a client of aiokafka wait for a broker: it connects once, so a worker that is starting would end, and later
    it asks without a pause."""
    connect = client.bootstrap

    async def connect_until_it_answers() -> None:
        while True:
            with suppress(KafkaConnectionError):
                await connect()
                return
            await asyncio.sleep(_CONNECT_AGAIN_S)

    client.bootstrap = connect_until_it_answers
    refresh = client._metadata_update

    async def refresh_or_pause(*args: Any) -> Any:
        found = await refresh(*args)
        if not found:
            # It may ask again as fast as brokers that are away refuse, which takes a fifth of a core.
            await asyncio.sleep(_ASK_AGAIN_S)
        return found

    client._metadata_update = refresh_or_pause


class ChunkTopic(faust.Topic):
    """A topic whose events carry chunks as they are."""

    def _compile_decode(self) -> None:
        return None

    async def decode(self, message: Any, *, propagate: bool = False) -> Event:
        """The chunk, as an event."""
        return Event(self.app, None, message.value, {}, message)


class QuickTableManager(TableManager):
    """There are no Faust tables here, so nothing has to settle for a second before the group is joined."""

    async def on_start(self) -> None:
        """As Faust's, without its sleep of 1 s."""
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()


class LaneWorker(faust.Worker):
    """Faust's worker with a hard deadline for shutting down."""

    def _flag_as_shutdown_by_signal(self) -> None:
        deadline = threading.Timer(self.app.shutdown_deadline_s, self._give_up)
        deadline.daemon = True
        deadline.start()
        super()._flag_as_shutdown_by_signal()

    def _give_up(self) -> None:
        # Safe at any point: what is not committed comes again.
        os.write(2, b"runlane: shutdown took too long; exiting now\n")
        os._exit(70)


class LaneApp(faust.App):
    """The Faust app of a worker."""

    def __init__(
        self,
        group: str,
        *,
        short_names: Mapping[str, str],
        fetch_wait_ms: int,
        shutdown_deadline_s: float,
        predecessors: Sequence[str],
        on_closed: Callable[[], Any],
        **kwargs: Any,
    ) -> None:
        """`short_names` maps each command topic's full name to the one without prefix; `predecessors` are members
        of the group that died; `on_closed` is awaited when the group has been left."""
        self.lanes: LaneRouter
        self.short_names = short_names
        self._full_names = {short: full for full, short in short_names.items()}
        self.fetch_wait_ms = fetch_wait_ms
        self.shutdown_deadline_s = shutdown_deadline_s
        self.predecessors = predecessors
        self._on_closed = on_closed
        super().__init__(
            group,
            Topic=ChunkTopic,
            Worker=LaneWorker,
            TableManager=QuickTableManager,
            store="memory://",
            # A leader topic and changelog topics of Faust's own have no use here.
            topic_disable_leader=True,
            topic_allow_declare=False,
            # More than 0 keeps Faust's own assignor, which hands out equal partition numbers together.
            table_standby_replicas=1,
            # With a reset policy expired commands would look like a hole.
            consumer_auto_offset_reset="none",
            autodiscover=False,
            **kwargs,
        )

    def tp(self, topic: str, partition: int) -> TP:
        """The partition of a topic that is named without prefix."""
        return TP(self._full_names[topic], partition)

    def _new_transport(self) -> LaneTransport:
        return LaneTransport(self.conf.broker_consumer, self)

    async def on_shutdown(self) -> None:
        """Everything is stopped and the group is left: release the lanes."""
        await super().on_shutdown()
        await self._on_closed()
