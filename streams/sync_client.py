"""The client for scripts and notebooks: the methods of `streams.client`, without async.

with RunlaneSyncClient(Settings()) as client:
    client.submit("run-1", "import-orders", {"day": "2025-01-31"})
    for event in client.events("run-1"):
        print(event.seq, event.type)
    print(client.wait_terminal("run-1", timeout=60))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from schemas.events import TerminalStatus
from schemas.run_results import (
    AppendResult,
    CancelResult,
    FinishResult,
    ListResult,
    StatusResult,
    SubmitResult,
    TerminalSetResult,
)
from schemas.terminals import TerminalState
from streams.client import RunlaneClient
from streams.client_errors import ClientClosedError
from streams.messaging.topic_reader import Start
from streams.observing import Following
from streams.run_calls import CallOptions
from streams.run_events import AnyRunEvent
from streams.settings import Settings

T = TypeVar("T")


class _LoopThread:
    """An event loop in a thread of its own; other threads have coroutines run in it and wait."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="runlane-client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result; it is cancelled when the waiting is interrupted (Ctrl-C)."""
        if not self._thread.is_alive():
            work.close()
            raise ClientClosedError("the client is closed", "make a new one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SyncFollowing(Iterator[T], Generic[T]):
    """An iterator over a topic's records; also a context manager, for leaving it early."""

    def __init__(self, thread: _LoopThread, following: Following[T]) -> None:
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
        self._running: _LoopThread | None = None

    def open(self) -> Self:
        """Connect; from then on no reply is missed. Raises `UserError`: no broker, or topics missing."""
        self._running = _LoopThread()
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

    def submit(
        self,
        run_id: str,
        name: str,
        params: Any = None,
        *,
        params_ref: Any = None,
        pool: str | None = None,
        parent_run_id: str | None = None,
        max_attempts: int | None = None,
        **options: Unpack[CallOptions],
    ) -> SubmitResult:
        """Start a run."""
        return self._thread.run(
            self._client.submit(
                run_id,
                name,
                params,
                params_ref=params_ref,
                pool=pool,
                parent_run_id=parent_run_id,
                max_attempts=max_attempts,
                **options,
            )
        )

    def status(
        self, run_id: str, *, wait_ms: int = 0, trace: bool = False, **options: Unpack[CallOptions]
    ) -> StatusResult:
        """How a run stands."""
        return self._thread.run(self._client.status(run_id, wait_ms=wait_ms, trace=trace, **options))

    def cancel(self, run_id: str, reason: str | None = None, **options: Unpack[CallOptions]) -> CancelResult:
        """End a run as cancelled."""
        return self._thread.run(self._client.cancel(run_id, reason, **options))

    def finish(self, run_id: str, **options: Unpack[CallOptions]) -> FinishResult:
        """Have the coordinator forget an ended run soon."""
        return self._thread.run(self._client.finish(run_id, **options))

    def append_event(
        self,
        run_id: str,
        event: Mapping[str, Any],
        *,
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> AppendResult:
        """Append an event given by its JSON fields."""
        return self._thread.run(
            self._client.append_event(run_id, event, instance_id=instance_id, attempt=attempt, **options)
        )

    def log(self, run_id: str, line: str, **options: Unpack[CallOptions]) -> AppendResult:
        """Append a `log` event."""
        return self._thread.run(self._client.log(run_id, line, **options))

    def progress(
        self,
        run_id: str,
        status: str,
        *,
        logs: Sequence[str] | None = None,
        active_node_id: str | None = None,
        active_artifact_table_namespace: str | None = None,
        updated_at: float | None = None,
        **options: Unpack[CallOptions],
    ) -> AppendResult:
        """Append a `progress` event."""
        return self._thread.run(
            self._client.progress(
                run_id,
                status,
                logs=logs,
                active_node_id=active_node_id,
                active_artifact_table_namespace=active_artifact_table_namespace,
                updated_at=updated_at,
                **options,
            )
        )

    def set_status(
        self, run_id: str, status: str, *, logs: Sequence[str] | None = None, **options: Unpack[CallOptions]
    ) -> AppendResult:
        """Append a `status` event."""
        return self._thread.run(self._client.set_status(run_id, status, logs=logs, **options))

    def list_events(
        self,
        run_id: str,
        *,
        after_seq: int = 0,
        limit: int | None = None,
        timeout_ms: int = 0,
        **options: Unpack[CallOptions],
    ) -> ListResult:
        """Kept events with `seq` over `after_seq`."""
        return self._thread.run(
            self._client.list_events(
                run_id, after_seq=after_seq, limit=limit, timeout_ms=timeout_ms, **options
            )
        )

    def set_terminal(
        self,
        run_id: str,
        status: TerminalStatus,
        *,
        result: Any = None,
        error: str | None = None,
        total_rows: Any = None,
        duration_ms: Any = None,
        play_name: str | None = None,
        completed_at: float | None = None,
        **options: Unpack[CallOptions],
    ) -> TerminalSetResult:
        """End a run; the first end stands."""
        return self._thread.run(
            self._client.set_terminal(
                run_id,
                status,
                result=result,
                error=error,
                total_rows=total_rows,
                duration_ms=duration_ms,
                play_name=play_name,
                completed_at=completed_at,
                **options,
            )
        )

    def complete(
        self, run_id: str, result: Any = None, *, total_rows: Any = None, **options: Unpack[CallOptions]
    ) -> TerminalSetResult:
        """End a run as completed."""
        return self._thread.run(self._client.complete(run_id, result, total_rows=total_rows, **options))

    def fail(self, run_id: str, error: str, **options: Unpack[CallOptions]) -> TerminalSetResult:
        """End a run as failed."""
        return self._thread.run(self._client.fail(run_id, error, **options))

    def get_terminal(self, run_id: str, **options: Unpack[CallOptions]) -> TerminalState | None:
        """How a run ended; None while it has not."""
        return self._thread.run(self._client.get_terminal(run_id, **options))

    def wait_terminal(self, run_id: str, timeout: float | None = None) -> TerminalState:
        """How a run ended; waits for it."""
        return self._thread.run(self._client.wait_terminal(run_id, timeout))

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
    def _thread(self) -> _LoopThread:
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
