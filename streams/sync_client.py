"""The client for scripts and notebooks: the methods of `streams.client`, without async.

with RunlaneSyncClient(Settings()) as client:
    client.submit("run-1", "import-orders", {"day": "2025-01-31"})
    for event in client.events("run-1"):
        print(event.seq, event.type)
    print(client.wait_terminal("run-1", timeout=60))
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from schemas.terminals import TerminalState
from streams.client import RunlaneClient
from streams.client_errors import ClientClosedError
from streams.command_methods import CallOptions
from streams.messaging.loop_thread import LoopThread
from streams.messaging.topic_reader import Start
from streams.observing import Following
from streams.run_events import AnyRunEvent
from streams.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[RunlaneClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[RunlaneSyncClient, P], T]:
    """A method of the client that does the same and waits for it."""

    @wraps(method)
    def call(self: RunlaneSyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._thread.run(method(self._client, *args, **kwargs))

    return call


class SyncFollowing(Iterator[T], Generic[T]):
    """An iterator over a topic's records; also a context manager, for leaving it early."""

    def __init__(self, thread: LoopThread, following: Following[T]) -> None:
        self._thread = thread
        self._following = following

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """The next item; waits for it."""
        found = self._thread.run(self._next())
        if not found:
            raise StopIteration
        return found[0]

    def close(self) -> None:
        """Let go of the topic."""
        self._thread.run(self._following.aclose())

    def __enter__(self) -> Self:
        self._thread.run(self._following.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _next(self) -> list[T]:
        # A future cannot carry StopAsyncIteration, so the end is an empty list.
        async for item in self._following:
            return [item]
        return []


class RunlaneSyncClient:
    """A client of the coordinator for any number of threads; see `RunlaneClient` for what the methods do.

    Works inside a running event loop too (notebooks): it has its own, in a thread.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        reply_partition: int | None = None,
        delivery_timeout_s: float | None = 300.0,
    ) -> None:
        self._client = RunlaneClient(
            settings, reply_partition=reply_partition, delivery_timeout_s=delivery_timeout_s
        )
        self._running: LoopThread | None = None

    def open(self) -> Self:
        """Connect; from then on no reply is missed. Raises `UserError`: no broker, or topics missing."""
        self._running = LoopThread("runlane-client")
        try:
            self._thread.run(self._client.open())
        except BaseException:
            self._stop()
            raise
        return self

    def close(self) -> None:
        """Send what is queued, end all iterators, and disconnect; again: nothing."""
        if self._running is not None:
            try:
                self._thread.run(self._client.close())
            finally:
                self._stop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    submit = _blocking(RunlaneClient.submit)
    status = _blocking(RunlaneClient.status)
    inspect = _blocking(RunlaneClient.inspect)
    cancel = _blocking(RunlaneClient.cancel)
    finish = _blocking(RunlaneClient.finish)
    append_event = _blocking(RunlaneClient.append_event)
    log = _blocking(RunlaneClient.log)
    progress = _blocking(RunlaneClient.progress)
    set_status = _blocking(RunlaneClient.set_status)
    list_events = _blocking(RunlaneClient.list_events)
    set_terminal = _blocking(RunlaneClient.set_terminal)
    complete = _blocking(RunlaneClient.complete)
    fail = _blocking(RunlaneClient.fail)
    get_terminal = _blocking(RunlaneClient.get_terminal)
    wait_terminal = _blocking(RunlaneClient.wait_terminal)
    set_child = _blocking(RunlaneClient.set_child)
    get_child = _blocking(RunlaneClient.get_child)
    await_child = _blocking(RunlaneClient.await_child)
    claim_call = _blocking(RunlaneClient.claim_call)
    renew_call = _blocking(RunlaneClient.renew_call)
    publish_call = _blocking(RunlaneClient.publish_call)
    await_call = _blocking(RunlaneClient.await_call)
    list_calls = _blocking(RunlaneClient.list_calls)
    launch = _blocking(RunlaneClient.launch)
    read_params = _blocking(RunlaneClient.read_params)
    put_retry = _blocking(RunlaneClient.put_retry)
    claim_retry = _blocking(RunlaneClient.claim_retry)
    put_launch = _blocking(RunlaneClient.put_launch)
    put_sessions = _blocking(RunlaneClient.put_sessions)
    get_sessions = _blocking(RunlaneClient.get_sessions)
    put_instance = _blocking(RunlaneClient.put_instance)
    get_instance = _blocking(RunlaneClient.get_instance)
    add_trace = _blocking(RunlaneClient.add_trace)
    list_traces = _blocking(RunlaneClient.list_traces)
    signal = _blocking(RunlaneClient.signal)
    acquire_permits = _blocking(RunlaneClient.acquire_permits)
    lease_permits = _blocking(RunlaneClient.lease_permits)
    renew_lease = _blocking(RunlaneClient.renew_lease)
    release_lease = _blocking(RunlaneClient.release_lease)
    settle_permits = _blocking(RunlaneClient.settle_permits)
    penalize = _blocking(RunlaneClient.penalize)
    peek_permits = _blocking(RunlaneClient.peek_permits)
    put_rate_rules = _blocking(RunlaneClient.put_rate_rules)
    get_rate_rules = _blocking(RunlaneClient.get_rate_rules)

    def events(
        self, run_id: str, *, from_seq: int = 1, follow: bool = True, since: int | None = None
    ) -> SyncFollowing[AnyRunEvent]:
        """A run's events, up to its terminal event."""
        return self._following(self._client.events(run_id, from_seq=from_seq, follow=follow, since=since))

    def follow_events(self, *, start: Start = "beginning", follow: bool = True) -> SyncFollowing[AnyRunEvent]:
        """The events of all runs."""
        return self._following(self._client.follow_events(start=start, follow=follow))

    def follow_terminals(
        self, *, start: Start = "beginning", follow: bool = True
    ) -> SyncFollowing[TerminalState]:
        """The ends of all runs."""
        return self._following(self._client.follow_terminals(start=start, follow=follow))

    def call(
        self, command_type: str, key: str, fields: Mapping[str, Any], **options: Unpack[CallOptions]
    ) -> dict[str, Any]:
        """The result of a command of any type; raises `CommandRefused` for a no."""
        return self._thread.run(self._client.sender.call(command_type, key, fields, **options))

    @property
    def _thread(self) -> LoopThread:
        if self._running is None:
            raise ClientClosedError(
                "the client is not open", "use it inside `with RunlaneSyncClient(...) as client:`"
            )
        return self._running

    def _following(self, following: Following[T]) -> SyncFollowing[T]:
        return SyncFollowing(self._thread, following)

    def _stop(self) -> None:
        thread, self._running = self._thread, None
        thread.stop()
