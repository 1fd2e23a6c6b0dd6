"""A consumer that turns the lines of a log topic into log events of runs (spec coordinator 9).

Why no transactions: a client's open transaction holds up `run-commands` for every lane until it ends, and a tail that
dies in the middle of one would stop the coordinator for as long as the broker waits for it. Instead each line has a
command id that is derived from where it stands, and little is under way at once: what is read twice is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from schemas.topics import TOPICS
from streams.client import RunlaneClient
from streams.client_errors import CommandNotDelivered, CommandRefused
from streams.execution.insistence import insist
from streams.log_tail.run_lines import RunLine, run_lines
from streams.messaging.command_sender import PendingCommand
from streams.messaging.kafka_config import member_config
from streams.run_calls import log_event
from streams.settings import Settings
from streams.user_errors import UserError

MAX_UNCOMMITTED_LINES = 500
"""A run's newest 1,000 command ids are remembered: half of them for what a tail that died had under way."""

_RECORDS_AT_ONCE = 500
_POLL_S = 0.2
_log = logging.getLogger("runlane.log_tail")

T = TypeVar("T")


@dataclass
class TailCounts:
    """What has become of the records."""

    records: int = 0
    """That were read and committed."""
    logged: int = 0
    """Lines that are log events now, or were before."""
    refused: Counter[str] = field(default_factory=Counter)
    """Lines that were refused, by the error's code: `RUN_ENDED` for runs that are over."""


class _Share(NamedTuple):
    """Records that are committed together, and their lines."""

    records: list[Any]
    lines: list[tuple[str, RunLine]]
    """(command id, line)."""


class LogTail:
    """Tails one topic, as a member of a consumer group: members share its partitions."""

    def __init__(self, settings: Settings, topic: str, group: str) -> None:
        """`topic` is the name on the broker, `group` one without the prefix. Raises `UserError` for our own topics."""
        if topic in {settings.name(name) for name in TOPICS}:
            raise UserError(
                f"{topic} is a topic of this deployment; its records are no log.",
                "name the topic to which the executors' log goes",
                exit_code=2,
            )
        self.counts = TailCounts()
        self._settings = settings
        self._topic = topic
        self._group = settings.name(group)
        self._client = RunlaneClient(settings, delivery_timeout_s=None)
        # The consumer blocks, and is used by one thread alone.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="runlane-log-tail")

    async def run(self, stop: asyncio.Event) -> TailCounts:
        """Tail until `stop` is set; returns what has become of the records.

        Goes on through a broker or a coordinator that is away. Raises `UserError` when the topic does not exist.
        """
        async with self._client:
            consumer = Consumer(member_config(self._settings, self._group))
            stopping = asyncio.create_task(stop.wait())
            tailing: asyncio.Task[None] | None = None
            try:
                await self._in_thread(lambda: self._subscribe(consumer))
                tailing = asyncio.create_task(self._tail(consumer, stop))
                await asyncio.wait({stopping, tailing}, return_when=asyncio.FIRST_COMPLETED)
                # What is under way may be answered yet; what is not is read again by whoever comes next.
                await asyncio.wait({tailing}, timeout=self._settings.shutdown_deadline_s / 2)
                if tailing.done():
                    await tailing
            finally:
                stopping.cancel()
                if tailing is not None:
                    tailing.cancel()
                await self._in_thread(consumer.close)
                self._thread.shutdown()
        return self.counts

    async def _tail(self, consumer: Any, stop: asyncio.Event) -> None:
        while not stop.is_set():
            messages = await self._in_thread(lambda: consumer.consume(_RECORDS_AT_ONCE, _POLL_S))
            for share in self._shares(_readable(messages)):
                if stop.is_set():
                    break
                await self._append(share.lines)
                await self._in_thread(partial(self._commit, consumer, share.records))
                self.counts.records += len(share.records)

    def _subscribe(self, consumer: Any) -> None:
        timeout_s = self._settings.command_timeout_s
        try:
            found = consumer.list_topics(self._topic, timeout_s).topics[self._topic]
        except KafkaException as error:
            raise UserError(f"Kafka did not say whether there is a topic {self._topic}: {error}") from error
        if found.error is not None:
            raise UserError(
                f"The topic {self._topic} cannot be read: {found.error.str()}.",
                "give its name on the broker: no prefix is put before it",
            )
        consumer.subscribe([self._topic])

    def _shares(self, messages: Sequence[Any]) -> Iterator[_Share]:
        share = _Share([], [])
        for message in messages:
            place = f"{message.partition()}/{message.offset()}/{message.timestamp()[1]}"
            lines = run_lines(message.value() or b"")
            if share.lines and len(share.lines) + len(lines) > MAX_UNCOMMITTED_LINES:
                yield share
                share = _Share([], [])
            share.records.append(message)
            share.lines.extend((self._command_id(place, line), line) for line in lines)
        if share.records:
            yield share

    def _command_id(self, place: str, line: RunLine) -> str:
        """The same for the same line; another one for a topic that was made anew, whose records have other times."""
        digest = blake2b(self._topic.encode(), digest_size=10).hexdigest()
        return f"log-tail/{digest}/{place}/{line.number}"

    async def _append(self, lines: Sequence[tuple[str, RunLine]]) -> None:
        """Make lines log events, in their order; returns when each is answered."""
        pending = [(command_id, line, await self._begin(command_id, line)) for command_id, line in lines]
        for command_id, line, sent in pending:
            try:
                await self._answer(command_id, line, sent)
            except CommandRefused as refusal:
                self.counts.refused[refusal.code] += 1
            except CommandNotDelivered as error:
                self.counts.refused[error.reason] += 1
            else:
                self.counts.logged += 1

    async def _begin(self, command_id: str, line: RunLine) -> PendingCommand | None:
        sender = self._client.sender
        try:
            return await sender.begin("events.append", line.run_id, _fields(line), command_id=command_id)
        except CommandNotDelivered:
            return None

    async def _answer(self, command_id: str, line: RunLine, sent: PendingCommand | None) -> None:
        timeout_s = self._settings.command_timeout_s
        if sent is not None:
            try:
                reply = await asyncio.wait_for(asyncio.shield(sent.reply), timeout_s)
                if reply.error is None:
                    return
                raise CommandRefused(sent.command, reply.error)
            except (TimeoutError, CommandNotDelivered):
                pass
            finally:
                self._client.sender.forget(sent)
        send = partial(self._client.sender.call, "events.append", line.run_id, _fields(line))
        await insist(
            send, f"run {line.run_id}: a line of its log", timeout_s=timeout_s, command_id=command_id
        )

    def _commit(self, consumer: Any, records: Sequence[Any]) -> None:
        ends = {message.partition(): message.offset() + 1 for message in records}
        places = [TopicPartition(self._topic, partition, end) for partition, end in ends.items()]
        try:
            consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            # The partition is another member's by now: it reads them again, and they are logged once.
            _log.info("committing %s: %s", self._topic, error)

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)


def _fields(line: RunLine) -> dict[str, Any]:
    return {"event": log_event(line.text)}


def _readable(messages: Sequence[Any]) -> list[Any]:
    """Those that are records; what is said between them goes to the log."""
    found = []
    for message in messages:
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() != KafkaError._PARTITION_EOF:
            _log.warning("reading %s: %s", message.topic(), error.str())
    return found
