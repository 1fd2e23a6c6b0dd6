"""Takes dispatches from Kafka as a member of the executors' group, and commits what is done."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from streams.execution.offset_ledger import OffsetLedger

_POLL_S = 0.1
_ROOM_WAIT_S = 0.2
_COMMIT_EVERY_S = 0.2
_END_PATIENCE_S = 5.0
_LEAST_CALL_S = 0.1
_REVOKE_PATIENCE_S = 3.0
_CLOSE_PATIENCE_S = 1.0
_log = logging.getLogger("runlane.executor")


@dataclass(eq=False)
class Ticket:
    """One delivery of a dispatch, to be given back by `finish` when all its effects are confirmed."""

    partition: int
    offset: int
    ledger: OffsetLedger
    maybe_repeated: bool
    """It was in the topic when this member got the partition: another may have executed it already."""


class DispatchConsumer:
    """Reads `run-dispatch` in a thread of its own; `room` dispatches are out at once.

    An offset is committed when its dispatch and all before it in the partition are finished. Partitions that
    are taken away are committed first, after a moment for what is about to finish; what is then still out is
    delivered again to the partition's next owner.
    """

    def __init__(
        self,
        config: dict[str, Any],
        topic: str,
        room: int,
        on_dispatch: Callable[[bytes | None, bytes | None, Ticket], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`on_dispatch(key, value, ticket)` and `on_failure(error)` are called in the consumer's thread."""
        self._topic = topic
        self._on_dispatch = on_dispatch
        self._on_failure = on_failure
        self._consumer = Consumer({**config, "on_commit": self._on_commit})
        self._room = room
        self._changed = threading.Condition()
        self._ledgers: dict[int, OffsetLedger] = {}
        self._end_at_start: dict[int, float] = {}
        self._committing = False
        self._commit_again_at = 0.0
        self._paused = False
        self._stopping = False
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="runlane-dispatches", daemon=True)

    def start(self) -> None:
        """Join the group and begin to deliver."""
        self._thread.start()

    def finish(self, ticket: Ticket, *, done: bool) -> None:
        """Give a ticket back (any thread); not `done`: the partition's next owner gets the dispatch again."""
        with self._changed:
            self._room += 1
            if done:
                ticket.ledger.finish(ticket.offset)
            self._changed.notify_all()

    def stop_taking(self) -> None:
        """Deliver nothing more (any thread); what gets finished is still committed until `close`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def close(self, patience_s: float) -> None:
        """Commit and leave the group (blocking); gives up after `patience_s`."""
        with self._changed:
            self._stopping = self._closing = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(patience_s)

    def _work(self) -> None:
        try:
            self._consumer.subscribe(
                [self._topic],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )
            while not self._closing:
                self._turn()
            self._leave()
        except BaseException as error:
            self._on_failure(error)

    def _turn(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._may_take(), _ROOM_WAIT_S)
            may_take = self._may_take()
        self._pause(not may_take)
        # Polled also when nothing may be taken: that is how the group knows that this member is alive.
        message = self._consumer.poll(_POLL_S if may_take else 0)
        if message is not None:
            self._take(message)
        self._commit()

    def _may_take(self) -> bool:
        return self._room > 0 and not self._stopping

    def _pause(self, wanted: bool) -> None:
        if wanted:
            # Each time anew: partitions that were just assigned may not be paused.
            self._consumer.pause(self._consumer.assignment())
        elif self._paused:
            self._consumer.resume(self._consumer.assignment())
        self._paused = wanted

    def _take(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            _log.warning("reading %s: %s", self._topic, error.str())
            return
        partition, offset = message.partition(), message.offset()
        with self._changed:
            ledger = self._ledgers.setdefault(partition, OffsetLedger())
            ledger.take(offset)
            self._room -= 1
        repeated = offset < self._end_at_start.get(partition, math.inf)
        self._on_dispatch(message.key(), message.value(), Ticket(partition, offset, ledger, repeated))

    def _commit(self) -> None:
        now = time.monotonic()
        if self._committing or now < self._commit_again_at:
            return
        if offsets := self._offsets(self._ledgers):
            self._committing = True
            self._commit_again_at = now + _COMMIT_EVERY_S
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def _offsets(self, partitions: Iterable[int]) -> list[Any]:
        with self._changed:
            found = {number: self._ledgers[number].to_commit() for number in partitions}
        return [TopicPartition(self._topic, number, at) for number, at in found.items() if at is not None]

    def _on_commit(self, error: KafkaError | None, offsets: list[Any]) -> None:
        self._committing = False
        for place in offsets:
            if failure := error or place.error:
                # Usual while the group rebalances; it is tried again, or the next owner asks how far runs are.
                _log.info("committing %s[%d]: %s", place.topic, place.partition, failure.str())
                continue
            with self._changed:
                if ledger := self._ledgers.get(place.partition):
                    ledger.committed(place.offset)

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        deadline = time.monotonic() + _END_PATIENCE_S
        for place in partitions:
            try:
                # Together, not each: the group takes a member for dead that does not come back from here.
                left_s = max(_LEAST_CALL_S, deadline - time.monotonic())
                end = self._consumer.get_watermark_offsets(place, left_s)[1]
            except KafkaException:
                end = math.inf
            with self._changed:
                self._ledgers[place.partition] = OffsetLedger()
                self._end_at_start[place.partition] = end
        # A partition that went while it was paused comes back paused: let the next turn resume it.
        self._paused = True

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        leaving = [place.partition for place in partitions if place.partition in self._ledgers]
        if not self._closing:
            with self._changed:
                self._changed.wait_for(
                    lambda: not any(self._ledgers[number].busy for number in leaving), _REVOKE_PATIENCE_S
                )
            if offsets := self._offsets(leaving):
                try:
                    self._consumer.commit(offsets=offsets, asynchronous=False)
                except KafkaException as error:
                    _log.info("committing %s before it is given away: %s", self._topic, error)
        self._on_lost(_, partitions)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        with self._changed:
            for place in partitions:
                self._ledgers.pop(place.partition, None)
                self._end_at_start.pop(place.partition, None)

    def _leave(self) -> None:
        self._pause(True)
        deadline = time.monotonic() + _CLOSE_PATIENCE_S
        self._commit_again_at = 0.0
        self._commit()
        while self._committing and time.monotonic() < deadline:
            self._consumer.poll(0.02)
        self._consumer.close()
