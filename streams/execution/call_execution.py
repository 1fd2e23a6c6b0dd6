"""Calls of a run's function that are executed once within the run: claim, execute, publish (spec coordinator 4)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from schemas.call_commands import OnFailure
from schemas.call_results import AwaitResult, ClaimResult
from schemas.dispatches import Dispatch
from schemas.errors import ErrorCode
from schemas.json_codec import encode
from schemas.names import MAX_OWNER_CHARACTERS
from streams.async_functions import is_async
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.execution.call_limits import CallLimits
from streams.execution.call_terms import CallTerms
from streams.execution.failure_text import MAX_MESSAGE_CHARACTERS, describe_failure
from streams.execution.functions import Outcome, call_async, call_in_thread
from streams.execution.insistence import Pauses, insist
from streams.execution.json_values import hash_input, stored_form
from streams.execution.known_secrets import KnownSecrets
from streams.execution.lease_keeper import Lease, LeaseKeeper
from streams.execution.run_reporter import RunReporter, RunStopped

T = TypeVar("T")


_ENVELOPE_BYTES = 4096
_WAIT_MS = 30_000


class CallFailed(Exception):
    """A call of `context.call` failed, in this execution or in an earlier one; its error is the call's result."""

    def __init__(self, tool_id: str, error: Any) -> None:
        told = error
        if isinstance(error, dict) and "name" in error:
            told = f"{error['name']}: {error.get('message', '')}"
        super().__init__(f"{tool_id}: {told}")
        self.tool_id = tool_id
        self.error = error
        """As it was published: any JSON; of an exception `{"name", "message", "stack"}`."""


class LeaseLost(Exception):
    """While a call was being executed, its lease passed on to another executor: this one's result is dropped.

    That happens to an executor that stood still, or could not reach the coordinator, for longer than the lease.
    """

    def __init__(self, lease: Lease, reason: str) -> None:
        super().__init__(
            f"the result of {lease.tool_id} was dropped, since fencing number {lease.fencing_number} does not hold "
            f"any more: {reason}"
        )
        self.tool_id = lease.tool_id
        self.fencing_number = lease.fencing_number


class CallExecution:
    """The calls of one execution of a run."""

    def __init__(
        self,
        client: RunlaneClient,
        dispatch: Dispatch,
        reporter: RunReporter,
        keeper: LeaseKeeper,
        limits: CallLimits,
        secrets: KnownSecrets,
    ) -> None:
        """Of what `secrets` knows nothing is told in the errors of calls; their values are the function's own."""
        self._client = client
        self._secrets = secrets
        self._dispatch = dispatch
        self._reporter = reporter
        self._keeper = keeper
        self._limits = limits
        self._entering: set[asyncio.Task[Any]] = set()
        """Calls of plain functions that wait for permits."""

    def stop(self) -> None:
        """The run is over: calls of plain functions that wait for permits are not executed."""
        for task in self._entering:
            task.cancel()

    async def call(
        self,
        tool_id: str,
        value: Any,
        execute: Callable[[Any], Any],
        terms: CallTerms,
    ) -> Any:
        """See `RunContext.call`; `execute` is async, or plain and gets a thread."""
        loop = asyncio.get_running_loop()
        executing: asyncio.Task[Outcome] | None = None

        def stop(code: str) -> None:
            if not self._reporter.is_over(code) and executing is not None:
                executing.cancel()

        begun = await self.begin(tool_id, value, terms, lambda code: _in_loop(loop, stop, code))
        if not isinstance(begun, Lease):
            return unwrap(tool_id, begun)
        executing = asyncio.create_task(self._execute(tool_id, value, execute, terms))
        try:
            outcome = await executing
        except Exception:
            # What the call raises is its outcome: it has not begun, since it got no permit.
            await self.give_back(begun)
            raise
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if begun.lost is not None and task is not None and not task.cancelling():
                raise LeaseLost(begun, begun.lost) from None
            if is_async(execute):
                await self.give_back(begun)
            else:
                # Its thread goes on: nobody else may execute the call before the lease has run out.
                self._keeper.let_go(begun)
            raise
        return await self.finish(begun, outcome, terms.on_failure)

    async def _execute(
        self, tool_id: str, value: Any, execute: Callable[[Any], Any], terms: CallTerms
    ) -> Outcome:
        async with self._limits.permit(terms.bucket, terms.cost):
            if is_async(execute):
                return await call_async(execute, value)
            return await call_in_thread(execute, value, f"run {self._dispatch.run_id}: {tool_id}")

    def call_here(
        self,
        tool_id: str,
        value: Any,
        execute: Callable[[Any], Any],
        terms: CallTerms,
        loop: asyncio.AbstractEventLoop,
    ) -> Any:
        """See `SyncRunContext.call`: `execute` is plain and executed by this thread, which is not the loop's."""
        if is_async(execute):
            raise TypeError(f"{execute!r} is async: it can be called from an async run function only")
        entering: Future[None] | None = None

        def stop(code: str) -> None:
            if not self._reporter.is_over(code) and entering is not None:
                entering.cancel()

        begin = self.begin(tool_id, value, terms, lambda code: _in_loop(loop, stop, code))
        begun = asyncio.run_coroutine_threadsafe(begin, loop).result()
        if not isinstance(begun, Lease):
            return unwrap(tool_id, begun)
        permit = AsyncExitStack()
        entering = asyncio.run_coroutine_threadsafe(self._enter(permit, begun, terms), loop)
        try:
            entering.result()
        except BaseException as error:
            asyncio.run_coroutine_threadsafe(self.give_back(begun), loop).result()
            if not isinstance(error, CancelledError):
                raise
            if begun.lost is not None and self._reporter.over is None:
                raise LeaseLost(begun, begun.lost) from None
            raise RunStopped(self._reporter.over or "CLOSED") from None
        try:
            outcome = Outcome(value=execute(value))
        except BaseException as error:
            outcome = Outcome(error=error)
        asyncio.run_coroutine_threadsafe(permit.aclose(), loop).result()
        return asyncio.run_coroutine_threadsafe(self.finish(begun, outcome, terms.on_failure), loop).result()

    async def _enter(self, permit: AsyncExitStack, lease: Lease, terms: CallTerms) -> None:
        """Wait for the permits of a plain function's call; cancelled when it shall not be executed."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._entering.add(task)
        try:
            await permit.enter_async_context(self._limits.permit(terms.bucket, terms.cost))
        finally:
            self._entering.discard(task)
        if self._reporter.over is not None or lease.lost is not None:
            await permit.aclose()
            raise asyncio.CancelledError

    async def begin(
        self, tool_id: str, value: Any, terms: CallTerms, on_lost: Callable[[str], None]
    ) -> Lease | ClaimResult | AwaitResult:
        """The call's result, or the lease to execute it, kept alive from now on; waits while another has it.

        `on_lost`: see `Lease`. Raises `RunStopped` when the run is over.
        """
        if self._reporter.over is not None:
            raise RunStopped(self._reporter.over)
        input_hash = hash_input(value) if terms.input_hash is None else terms.input_hash
        await self._keeper.ready()
        run_id, instance_id, attempt = (
            self._dispatch.run_id,
            self._dispatch.instance_id,
            self._dispatch.attempt,
        )
        owner, lease_ms = _owner(), round(terms.lease_s * 1000)
        name = (run_id, tool_id, input_hash)
        given: dict[str, Any] = {"lease_ms": lease_ms, "instance_id": instance_id, "attempt": attempt}
        claim = partial(self._client.claim_call, *name, owner, **given)
        wait = partial(self._client.await_call, *name, timeout_ms=_WAIT_MS, claim_for=owner, **given)

        answer: ClaimResult | AwaitResult = await self._insist(claim)
        pauses = Pauses()
        while answer.status in ("pending", "timeout"):
            try:
                answer = await self._insist(wait, _WAIT_MS / 1000)
            except CommandRefused as refusal:
                if refusal.code != ErrorCode.TOO_MANY_WAITS:
                    raise
                await pauses.take()
        if answer.fencing_number is None:
            return answer
        lease = Lease(
            run_id, tool_id, input_hash, answer.fencing_number, lease_ms, instance_id, attempt, on_lost
        )
        self._keeper.keep(lease)
        return lease

    async def finish(self, lease: Lease, outcome: Outcome, on_failure: OnFailure) -> Any:
        """Publish what came of an execution; returns its value as it is stored.

        Raises `CallFailed` for an error, `LeaseLost` when the call is another one's by now, and passes on what is
        no `Exception`, such as `RunStopped`, after the call was given back.
        """
        if outcome.error is not None and not isinstance(outcome.error, Exception):
            await self.give_back(lease)
            raise outcome.error
        try:
            value, error = (
                (None, outcome.error) if outcome.error is not None else (self._checked(outcome), None)
            )
        except (TypeError, ValueError) as wrong:
            value, error = None, wrong
        told = self._secrets.hide(_as_json(error)) if error is not None else None
        name = (lease.run_id, lease.tool_id, lease.input_hash, lease.fencing_number)
        publish = partial(self._client.publish_call, *name, value, error=told, on_failure=on_failure)
        try:
            await self._insist(publish)
        except CommandRefused as refusal:
            if refusal.code == ErrorCode.CALL_FENCED:
                raise LeaseLost(lease, refusal.reason) from error
            raise
        finally:
            self._keeper.let_go(lease)
        if error is not None:
            raise CallFailed(lease.tool_id, told) from error
        return value

    async def give_back(self, lease: Lease) -> None:
        """The call is not executed to its end: let another executor claim it without waiting for the lease."""
        self._keeper.let_go(lease)
        fields = {
            "toolId": lease.tool_id,
            "inputHash": lease.input_hash,
            "fencingNumber": lease.fencing_number,
            "error": "the executor gave the call back",
            "onFailure": "release",
        }
        # When that fails, the lease runs out.
        with contextlib.suppress(Exception):
            await self._client.sender.post("call.publish", lease.run_id, fields)

    def _checked(self, outcome: Outcome) -> Any:
        value = stored_form(outcome.value)
        size, limit = len(encode(value)) + _ENVELOPE_BYTES, self._client.settings.max_command_bytes
        if size > limit:
            raise ValueError(f"a value of {size} bytes is too large: at most {limit} are accepted")
        return value

    async def _insist(self, send: Callable[..., Awaitable[T]], wait_s: float = 0.0) -> T:
        """Send a command until it is answered. Raises `RunStopped` when the run is over."""
        timeout_s = wait_s + self._client.settings.command_timeout_s
        try:
            return await insist(send, f"run {self._dispatch.run_id}: a call", timeout_s=timeout_s)
        except CommandRefused as refusal:
            if self._reporter.is_over(refusal.code):
                raise RunStopped(refusal.code) from None
            raise


def unwrap(tool_id: str, hit: ClaimResult | AwaitResult) -> Any:
    """The value of a call that was executed before. Raises `CallFailed` when it is an error."""
    if not hit.ok:
        raise CallFailed(tool_id, hit.error)
    return hit.value


def _in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[str], object], code: str) -> None:
    # A closed loop: the executor has been stopped.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(work, code)


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"[-MAX_OWNER_CHARACTERS:]


def _as_json(error: BaseException) -> dict[str, str]:
    text = describe_failure(error)
    heading = text.partition("\n")[0]
    return {
        "name": type(error).__name__,
        "message": heading.partition(": ")[2][:MAX_MESSAGE_CHARACTERS],
        "stack": text,
    }
