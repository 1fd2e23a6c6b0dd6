"""Keeps the leases of calls alive, from a thread of its own: user code that blocks the event loop loses none."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from streams.client import RunlaneClient
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.messaging.loop_thread import LoopThread
from streams.settings import Settings
from streams.user_errors import UserError

_RENEWALS_PER_LEASE = 3
_PAUSE_S = 0.2
_CLOSE_S = 1.0
_log = logging.getLogger("runlane.executor")


@dataclass(eq=False)
class Lease:
    """A lease that is kept alive until it is let go of."""

    run_id: str
    tool_id: str
    input_hash: str
    fencing_number: int
    lease_ms: int
    instance_id: str
    attempt: int
    on_lost: Callable[[str], None]
    """Called in the keeper's thread, with the code that the coordinator refuses it with."""
    lost: str | None = None
    """That code."""
    renewing: Future[None] | None = None


class LeaseKeeper:
    """One for all executions of an executor; it has a client, and so connections, of its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._opened: Future[RunlaneClient] | None = None

    async def ready(self) -> None:
        """Wait until it can renew. What is claimed before that might run out."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("runlane-leases")
            if self._opened is None:
                self._opened = self._thread.begin(self._open())
        await asyncio.shield(asyncio.wrap_future(self._opened))

    def keep(self, lease: Lease) -> None:
        """Renew a lease again and again; `ready` has to have been waited for."""
        if self._thread is not None:
            lease.renewing = self._thread.begin(self._renew(lease))

    def let_go(self, lease: Lease) -> None:
        """Renew it no more."""
        if lease.renewing is not None:
            lease.renewing.cancel()

    def close(self) -> None:
        """Let go of everything and end the thread; blocks for about a second at most."""
        with self._lock:
            thread, opened = self._thread, self._opened
            self._thread = self._opened = None
        if thread is None:
            return
        if opened is not None and not opened.cancel() and opened.exception() is None:
            thread.run(opened.result().close(_CLOSE_S))
        thread.stop()

    async def _open(self) -> RunlaneClient:
        while True:
            client = RunlaneClient(self._settings, delivery_timeout_s=None)
            try:
                return await client.open()
            except UserError as error:
                _log.warning("cannot keep leases yet, trying again: %s", error)
                await client.close(0)
                await asyncio.sleep(_PAUSE_S)

    async def _renew(self, lease: Lease) -> None:
        assert self._opened is not None, "`ready` was not waited for"
        client, pause_s = self._opened.result(), lease.lease_ms / 1000 / _RENEWALS_PER_LEASE
        while True:
            await asyncio.sleep(pause_s)
            try:
                await client.renew_call(
                    lease.run_id,
                    lease.tool_id,
                    lease.input_hash,
                    lease.fencing_number,
                    lease_ms=lease.lease_ms,
                    instance_id=lease.instance_id,
                    attempt=lease.attempt,
                    timeout=max(1.0, pause_s),
                )
            except (CommandTimeout, CommandNotDelivered) as error:
                # It may run out, and still be this one's: the fencing number decides.
                _log.warning(
                    "run %s: the lease of %s was not renewed: %s", lease.run_id, lease.tool_id, error
                )
                pause_s = _PAUSE_S
            except CommandRefused as refusal:
                lease.lost = refusal.code
                lease.on_lost(refusal.code)
                return
            else:
                pause_s = lease.lease_ms / 1000 / _RENEWALS_PER_LEASE
