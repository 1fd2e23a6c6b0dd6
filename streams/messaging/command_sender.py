"""Send commands, and wait for the answers."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from schemas.commands import CommandSet
from schemas.json_codec import encode
from schemas.rate_commands import RATE_COMMANDS
from schemas.replies import CORRELATION_ID, REPLY_PARTITION, Reply
from schemas.run_commands import RUN_COMMANDS
from schemas.topics import REPLIES
from streams import topic_admin
from streams.broker.local_broker import resolve_brokers
from streams.client_errors import (
    ClientClosedError,
    CommandNotDelivered,
    CommandRefused,
    CommandTimeout,
    SentCommand,
)
from streams.messaging.async_producer import AsyncProducer, Delivery
from streams.messaging.kafka_config import producer_config, reply_config
from streams.messaging.loop_inbox import LoopInbox
from streams.messaging.reply_inbox import ReplyInbox
from streams.partitioner import partition_for
from streams.settings import Settings

COMMAND_SETS: tuple[CommandSet, ...] = (RUN_COMMANDS, RATE_COMMANDS)
"""The command topics that a client can send to."""

_SETS_BY_TYPE = {type_: commands for commands in COMMAND_SETS for type_ in commands.by_type}
_RETRY_PAUSE_S = 0.5


@dataclass(eq=False)
class PendingCommand:
    """A command whose answer is awaited. `reply` completes with it, or fails with `CommandNotDelivered`."""

    command: SentCommand
    value: bytes = field(repr=False)
    correlation_id: bytes
    reply: asyncio.Future[Reply]
    delivery: Delivery | None = None
    """None while it waits for room in the producer's queue."""

    @property
    def offset(self) -> int | None:
        """Where Kafka has stored it; None when it has not, or not yet."""
        delivery = self.delivery
        if delivery is None or not delivery.done() or delivery.cancelled() or delivery.exception():
            return None
        return delivery.result()[1]


class CommandSender:
    """Commands out, replies in, for one event loop.

    Its reply position is taken when it is opened, so no reply to its commands can be missed.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reply_partition: int | None = None,
        delivery_timeout_s: float | None = 300.0,
    ) -> None:
        """`reply_partition` None: one by chance. `delivery_timeout_s` None: commands wait for Kafka for ever.

        Raises `UserError` when no broker is set and the local one does not run.
        """
        self.settings = settings
        self.partitions = 0
        """How many partitions every topic has; known once open."""
        self._reply_partition = reply_partition
        self._delivery_timeout_s = delivery_timeout_s
        self._brokers = resolve_brokers(settings)
        self._waiting: dict[bytes, PendingCommand] = {}
        self._producer: AsyncProducer | None = None
        self._inbox: ReplyInbox | None = None

    async def open(self, patience_s: float | None = None) -> None:
        """Connect, within `patience_s` (default: the setting `command_timeout_s`).

        Raises `UserError` when the broker does not answer, or topics are missing or unequal.
        """
        patience_s = self.settings.command_timeout_s if patience_s is None else patience_s
        deadline = time.monotonic() + patience_s
        self.partitions = await asyncio.to_thread(
            topic_admin.require_equal_partitions, self.settings, patience_s=patience_s
        )
        if self._reply_partition is None:
            self._reply_partition = random.randrange(self.partitions)
        answers: LoopInbox[tuple[bytes, Reply]] = LoopInbox(asyncio.get_running_loop(), self._answer)
        inbox = ReplyInbox(
            reply_config(self.settings),
            self.settings.name(REPLIES.name),
            self._reply_partition,
            lambda correlation_id, reply: answers.put((correlation_id, reply)),
        )
        await asyncio.to_thread(inbox.start, max(0.1, deadline - time.monotonic()))
        self._inbox = inbox
        self._producer = AsyncProducer(producer_config(self.settings, self._delivery_timeout_s))

    async def close(self, timeout_s: float = 10.0) -> None:
        """Send what is queued, for at most `timeout_s`; whoever still waits for a reply is cancelled."""
        producer, inbox = self._producer, self._inbox
        self._producer = self._inbox = None
        if producer is not None:
            await producer.close(timeout_s)
        if inbox is not None:
            await asyncio.to_thread(inbox.close)
        for pending in self._waiting.values():
            if not pending.reply.done():
                pending.reply.set_exception(ClientClosedError("the client was closed before the reply came"))
                pending.reply.exception()
        self._waiting.clear()

    async def post(
        self, command_type: str, key: str, fields: Mapping[str, Any], *, command_id: str | None = None
    ) -> Delivery:
        """Send a command and ask for no reply; await the result to know that Kafka has stored it."""
        producer, _ = self._opened()
        command, value = self._prepare(command_type, key, fields, command_id)
        try:
            return await producer.produce(command.topic, value, key.encode())
        except KafkaException as error:
            raise _not_delivered(command, error) from error

    async def begin(
        self, command_type: str, key: str, fields: Mapping[str, Any], *, command_id: str | None = None
    ) -> PendingCommand:
        """Send a command, to look at its `reply` later; `forget` it when that does not matter any more."""
        pending = self._expect(command_type, key, fields, command_id)
        try:
            await self._produce(pending)
        except BaseException:
            self.forget(pending)
            raise
        return pending

    def forget(self, pending: PendingCommand) -> None:
        """Wait for this answer no longer; one that comes later is dropped."""
        self._waiting.pop(pending.correlation_id, None)
        pending.reply.cancel()

    async def send(
        self,
        command_type: str,
        key: str,
        fields: Mapping[str, Any],
        *,
        command_id: str | None = None,
        timeout: float | None = None,
        attempts: int = 1,
    ) -> Reply:
        """Send a command and wait for its reply, whether it is yes or no.

        Each of `attempts` waits `timeout` seconds (default: the setting `command_timeout_s`) and sends the
        same command id, so the command takes effect once however often it arrives. Raises `CommandTimeout`
        and `CommandNotDelivered`.
        """
        timeout = self.settings.command_timeout_s if timeout is None else timeout
        pending = self._expect(command_type, key, fields, command_id)
        try:
            for attempt in range(1, attempts + 1):
                try:
                    return await self._attempt(pending, timeout, timeout * attempt)
                except CommandTimeout:
                    if attempt == attempts:
                        raise
                except CommandNotDelivered as error:
                    if attempt == attempts or not error.retriable:
                        raise
                    await asyncio.sleep(_RETRY_PAUSE_S)
            raise ValueError(f"attempts must be 1 or more, not {attempts}")
        finally:
            self.forget(pending)

    async def call(
        self,
        command_type: str,
        key: str,
        fields: Mapping[str, Any],
        *,
        command_id: str | None = None,
        timeout: float | None = None,
        attempts: int = 1,
    ) -> dict[str, Any]:
        """As `send`, but returns the result and raises `CommandRefused` for a no."""
        command_id = command_id or str(uuid.uuid4())
        reply = await self.send(
            command_type, key, fields, command_id=command_id, timeout=timeout, attempts=attempts
        )
        if reply.error is not None:
            raise CommandRefused(self._describe(command_type, key, command_id), reply.error)
        return reply.result or {}

    async def _attempt(self, pending: PendingCommand, timeout: float, waited_s: float) -> Reply:
        if pending.reply.done() and pending.reply.exception() is not None:
            pending.reply = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                await self._produce(pending)
                return await asyncio.shield(pending.reply)
        except TimeoutError:
            inbox = self._opened()[1]
            raise CommandTimeout(
                pending.command,
                waited_s=waited_s,
                offset=pending.offset,
                replies=f"{inbox.topic}[{inbox.partition}]",
                brokers=self._brokers,
            ) from None

    def _opened(self) -> tuple[AsyncProducer, ReplyInbox]:
        if self._producer is None or self._inbox is None:
            raise ClientClosedError("the client is not open", "use it inside `async with RunlaneClient(...)`")
        return self._producer, self._inbox

    def _describe(self, command_type: str, key: str, command_id: str) -> SentCommand:
        commands = _SETS_BY_TYPE.get(command_type)
        if commands is None:
            known = ", ".join(sorted(_SETS_BY_TYPE))
            raise ValueError(f"no command is called {command_type!r}; these exist: {known}")
        return SentCommand(
            type=command_type,
            command_id=command_id,
            id_field=commands.id_field,
            key=key,
            topic=self.settings.name(commands.topic),
            partition=partition_for(key.encode(), self.partitions),
        )

    def _prepare(
        self, command_type: str, key: str, fields: Mapping[str, Any], command_id: str | None
    ) -> tuple[SentCommand, bytes]:
        command = self._describe(command_type, key, command_id or str(uuid.uuid4()))
        envelope = {"type": command_type, "commandId": command.command_id, command.id_field: key}
        if taken := envelope.keys() & fields.keys():
            raise ValueError(f"{', '.join(sorted(taken))} cannot be among the fields of {command_type}")
        return command, encode({**envelope, **fields})

    def _expect(
        self, command_type: str, key: str, fields: Mapping[str, Any], command_id: str | None
    ) -> PendingCommand:
        _, inbox = self._opened()
        command, value = self._prepare(command_type, key, fields, command_id)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        pending = PendingCommand(command, value, inbox.next_correlation_id(), reply)
        self._waiting[pending.correlation_id] = pending
        return pending

    async def _produce(self, pending: PendingCommand) -> None:
        producer, inbox = self._opened()
        headers = [(CORRELATION_ID, pending.correlation_id), (REPLY_PARTITION, b"%d" % inbox.partition)]
        command = pending.command
        try:
            delivery = await producer.produce(command.topic, pending.value, command.key.encode(), headers)
        except KafkaException as error:
            raise _not_delivered(command, error) from error
        pending.delivery = delivery
        delivery.add_done_callback(lambda done: self._delivered(pending, done))

    def _delivered(self, pending: PendingCommand, delivery: Delivery) -> None:
        if delivery.cancelled() or pending.delivery is not delivery or pending.reply.done():
            return
        error = delivery.exception()
        if isinstance(error, KafkaException):
            pending.reply.set_exception(_not_delivered(pending.command, error))
            pending.reply.exception()

    def _answer(self, item: tuple[bytes, Reply]) -> None:
        correlation_id, reply = item
        pending = self._waiting.pop(correlation_id, None)
        if pending is not None and not pending.reply.done():
            pending.reply.set_result(reply)


def _not_delivered(command: SentCommand, error: KafkaException) -> CommandNotDelivered:
    cause = error.args[0]
    permanent = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_MSG, KafkaError.TOPIC_AUTHORIZATION_FAILED}
    return CommandNotDelivered(command, cause.str(), retriable=cause.code() not in permanent)
