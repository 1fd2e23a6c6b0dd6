"""The running executor: dispatches in, executions side by side, offsets committed when they are confirmed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

import orjson
from pydantic import ValidationError

from schemas.dispatches import Dispatch
from schemas.topics import RUN_DISPATCH
from streams.client import RunlaneClient
from streams.execution.call_limits import CallLimits
from streams.execution.dispatch_consumer import DispatchConsumer, Ticket
from streams.execution.functions import RunFunction
from streams.execution.lease_keeper import LeaseKeeper
from streams.execution.run_execution import RunExecution
from streams.launching.session_keys import KeyRing
from streams.messaging.kafka_config import member_config
from streams.messaging.loop_inbox import LoopInbox
from streams.settings import Settings
from streams.topic_admin import TopicLayoutError
from streams.user_errors import UserError

_CONNECT_PATIENCE_S = 2.0
_RECONNECT_S = 1.0
_SAY_AGAIN_S = 30.0
_LONGEST_PAUSE_S = 60.0
_LEAVE_S = 2.0
_FLUSH_S = 0.5
_log = logging.getLogger("runlane.executor")

_Key = tuple[str, str, int]


class ExecutorRunner:
    """Executes dispatches until it is stopped; an async context manager.

    Every dispatch is executed at least once; of what its commands do, everything happens once.
    """

    def __init__(
        self,
        settings: Settings,
        functions: Mapping[str, RunFunction],
        *,
        concurrency: int,
        group: str,
        ignore_unknown: bool,
        session_keys: KeyRing | None = None,
    ) -> None:
        """`group` is a name without prefix. Raises `UserError` when no broker is known."""
        self.settings = settings
        self._functions = functions
        self._concurrency = concurrency
        self._group = settings.name(group)
        self._ignore_unknown = ignore_unknown
        self._session_keys = session_keys
        self._client = RunlaneClient(settings, delivery_timeout_s=None)
        self._keeper = LeaseKeeper(settings)
        self._limits = CallLimits(self._client)
        self._consumer: DispatchConsumer | None = None
        self._executions: dict[_Key, asyncio.Task[None]] = {}
        self._failure: asyncio.Future[None] | None = None

    async def start(self) -> Self:
        """Connect, for as long as it takes, and begin. Raises `UserError` when topics are missing."""
        said_at = -_SAY_AGAIN_S
        while True:
            try:
                # Short tries: a thread that asks Kafka cannot be interrupted, and the executor may be told to stop.
                await self._client.open(_CONNECT_PATIENCE_S)
                break
            except TopicLayoutError:
                raise
            except UserError as error:
                if time.monotonic() - said_at >= _SAY_AGAIN_S:
                    said_at = time.monotonic()
                    _log.warning("waiting for Kafka: %s", error)
                await asyncio.sleep(_RECONNECT_S)
        loop = asyncio.get_running_loop()
        self._failure = loop.create_future()
        arrivals: LoopInbox[tuple[bytes | None, bytes | None, Ticket]] = LoopInbox(loop, self._arrived)
        failures: LoopInbox[BaseException] = LoopInbox(loop, self._failed)
        self._consumer = DispatchConsumer(
            member_config(self.settings, self._group),
            self.settings.name(RUN_DISPATCH.name),
            self._concurrency,
            lambda key, value, ticket: arrivals.put((key, value, ticket)),
            failures.put,
        )
        self._consumer.start()
        return self

    async def wait_failed(self) -> None:
        """Wait until the executor cannot go on, and raise why; it goes on through everything that passes."""
        if self._failure is not None:
            await asyncio.shield(self._failure)

    async def stop(self, grace_s: float) -> None:
        """Take nothing more, wait `grace_s` for what is executed, give the rest back, leave the group."""
        consumer = self._consumer
        if consumer is not None:
            consumer.stop_taking()
            if running := list(self._executions.values()):
                await asyncio.wait(running, timeout=grace_s)
            unfinished = list(self._executions.values())
            for task in unfinished:
                task.cancel()
            if unfinished:
                _log.warning(
                    "%d runs are given back: another executor takes those that have not ended",
                    len(unfinished),
                )
                await asyncio.wait(unfinished, timeout=1.0)
            await asyncio.to_thread(consumer.close, _LEAVE_S)
        await asyncio.to_thread(self._keeper.close)
        await self._limits.close()
        await self._client.close(_FLUSH_S)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop(self.settings.shutdown_deadline_s / 2)

    def _failed(self, error: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            self._failure.set_exception(error)

    def _arrived(self, item: tuple[bytes | None, bytes | None, Ticket]) -> None:
        key, value, ticket = item
        try:
            dispatch = Dispatch.model_validate(orjson.loads(value or b""))
        except (ValueError, ValidationError) as error:
            place = f"{RUN_DISPATCH.name}[{ticket.partition}]@{ticket.offset}"
            _log.error("%s (key %r) is no dispatch, passed over: %s", place, key, error)
            self._finish(ticket, done=True)
            return
        if self._ignore_unknown and dispatch.name not in self._functions:
            self._finish(ticket, done=True)
            return
        identity = (dispatch.run_id, dispatch.instance_id, dispatch.attempt)
        execution = self._executions.get(identity)
        if execution is None:
            execution = asyncio.create_task(
                self._execute(dispatch, ticket.maybe_repeated), name=f"run {dispatch.run_id}"
            )
            self._executions[identity] = execution
            execution.add_done_callback(lambda _: self._executions.pop(identity))
        # The partition may have gone and come back: then one execution stands for both deliveries.
        execution.add_done_callback(lambda task: self._finish(ticket, done=_succeeded(task)))

    async def _execute(self, dispatch: Dispatch, maybe_repeated: bool) -> None:
        pause_s = 1.0
        while True:
            try:
                execution = RunExecution(
                    self._client, dispatch, self._functions, self._keeper, self._limits, self._session_keys
                )
                return await execution.execute(maybe_repeated=maybe_repeated)
            except Exception:
                _log.exception("run %s: the executor itself failed, trying again", dispatch.run_id)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                maybe_repeated = True

    def _finish(self, ticket: Ticket, *, done: bool) -> None:
        if self._consumer is not None:
            self._consumer.finish(ticket, done=done)


def _succeeded(task: asyncio.Task[None]) -> bool:
    return not task.cancelled() and task.exception() is None
