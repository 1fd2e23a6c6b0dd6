"""Commands on a fixed schedule, and when their events became visible."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import orjson
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from schemas.topics import RUN_COMMANDS, RUN_EVENTS
from streams.bench.workload import append_command, command_id, command_number
from streams.messaging.kafka_config import producer_config, reader_config
from streams.settings import Settings
from streams.user_errors import UserError

_FETCH_WAIT_MS = 5
_POLL_S = 0.1
_BATCH = 1000
_SEND_PATIENCE_S = 120.0
_LONGEST_SLEEP_S = 0.05
_OFFSET_CALL_S = 15.0
_PREFIX = command_id(0)[:6]


@dataclass
class Schedule:
    """When each command was meant to be sent: what is measured starts there, however late it left."""

    rate: float
    first_number: int
    started: float = 0.0
    sent: int = 0
    latest_s: float = 0.0
    """How late the sender itself was at worst."""

    def intended(self, number: int) -> float:
        """The intended time of a command, by the monotonic clock."""
        return self.started + (number - self.first_number) / self.rate

    @property
    def numbers(self) -> range:
        """The numbers of the commands that were sent."""
        return range(self.first_number, self.first_number + self.sent)


class OpenLoopSender:
    """Sends commands at a fixed rate in a thread of its own, never waiting for any answer."""

    def __init__(self, settings: Settings, rate: float, *, runs: int, first_number: int = 0) -> None:
        """`first_number` keeps the ids of several senders apart."""
        self.schedule = Schedule(rate, first_number)
        self._runs = runs
        self._topic = settings.name(RUN_COMMANDS.name)
        self._producer = Producer(producer_config(settings, _SEND_PATIENCE_S))
        self._stopping = threading.Event()
        self._refused: list[str] = []
        self._thread = threading.Thread(target=self._run, name="bench-sender")

    def __enter__(self) -> Self:
        # Connected first, so that the first commands do not wait for it.
        self._producer.list_topics(self._topic, timeout=_OFFSET_CALL_S)
        self.schedule.started = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        unsent = self._producer.flush(_SEND_PATIENCE_S if kind is None else 1)
        if kind is None and (unsent or self._refused):
            raise UserError(
                f"The broker did not take the commands: {self._refused[:1] or 'no answer in time'}."
            )

    def _run(self) -> None:
        schedule, producer = self.schedule, self._producer
        while not self._stopping.is_set():
            number = schedule.first_number + schedule.sent
            wait = schedule.intended(number) - time.monotonic()
            if wait > 0:
                producer.poll(0)
                time.sleep(min(wait, _LONGEST_SLEEP_S))
                continue
            schedule.latest_s = max(schedule.latest_s, -wait)
            key, value = append_command(number % self._runs, command_id(number), schedule.sent // self._runs)
            try:
                producer.produce(self._topic, value, key, on_delivery=self._delivered)
            except BufferError:
                producer.poll(_POLL_S)
                continue
            schedule.sent += 1

    def _delivered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._refused.append(str(error))


@dataclass
class Arrivals:
    """Events in the order in which a reader of committed records got them, from one moment on."""

    seen: list[tuple[float, int, int]] = field(default_factory=list)
    """(time by the monotonic clock, partition, number of the command)."""

    def numbered(self, numbers: range) -> Iterator[tuple[float, int, int]]:
        """Those of the commands with these numbers."""
        return (arrival for arrival in list(self.seen) if arrival[2] in numbers)


class EventWatch:
    """Reads `run-events` in a thread of its own, from its end at the start of the block on."""

    def __init__(self, settings: Settings) -> None:
        self.arrivals = Arrivals()
        self._topic = settings.name(RUN_EVENTS.name)
        self._partitions = settings.partitions
        self._consumer = Consumer({**reader_config(settings), "fetch.wait.max.ms": _FETCH_WAIT_MS})
        self._stopping = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bench-watch")

    def __enter__(self) -> Self:
        places = [TopicPartition(self._topic, partition) for partition in range(self._partitions)]
        for place in places:
            place.offset = self._consumer.get_watermark_offsets(place, timeout=_OFFSET_CALL_S)[1]
        self._consumer.assign(places)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._consumer.close()

    def wait_for(self, numbers: range, patience_s: float) -> None:
        """Wait until the event of every one of these commands is visible; each must be there once."""
        deadline = time.monotonic() + patience_s
        while (missing := len(numbers) - len({seen for _, _, seen in self.arrivals.numbered(numbers)})) > 0:
            if self._error is not None:
                raise self._error
            if time.monotonic() > deadline:
                raise UserError(
                    f"{missing:,} of {len(numbers):,} events are missing after {patience_s:.0f} s."
                )
            time.sleep(_POLL_S)
        found = sum(1 for _ in self.arrivals.numbered(numbers))
        if found != len(numbers):
            raise UserError(f"{found - len(numbers):,} of {len(numbers):,} commands took effect twice.")

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._take()
        except BaseException as error:
            self._error = error

    def _take(self) -> None:
        first = self._consumer.poll(_POLL_S)
        if first is None:
            return
        # With a time-out of 0 this takes what is here already and waits for no more.
        messages = [first, *self._consumer.consume(_BATCH, 0)]
        now = time.monotonic()
        for message in messages:
            error = message.error()
            if error is None:
                made_by = orjson.loads(message.value())["commandId"]
                if made_by.startswith(_PREFIX):
                    self.arrivals.seen.append((now, message.partition(), command_number(made_by)))
            elif error.fatal():
                raise KafkaException(error)
