"""The client: commands with typed answers, a run's events as an iterator, waiting for its end.

    async with RunlaneClient(Settings()) as client:
        await client.submit("run-1", "import-orders", {"day": "2025-01-31"})
        async for event in client.events("run-1"):
            print(event.seq, event.type)
        print(await client.wait_terminal("run-1", timeout=60))

`streams.sync_client` has the same for scripts and notebooks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from schemas.encrypted_sessions import EncryptedSession
from schemas.terminals import TerminalState
from schemas.topics import RUN_EVENTS, RUN_TERMINALS, TopicSpec
from streams.child_calls import ChildCalls
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout, EndTimeout
from streams.deduplicated_calls import DeduplicatedCalls
from streams.launch_calls import LaunchCalls
from streams.launching.launch import Launched, launch
from streams.launching.object_store import ObjectStore
from streams.launching.params_spill import read_params
from streams.messaging.command_sender import CommandSender
from streams.messaging.topic_reader import Start, TopicReader
from streams.observing import AllEvents, RunEvents, Terminals
from streams.partitioner import partition_for
from streams.rate_calls import RateCalls
from streams.run_calls import RunCalls
from streams.settings import Settings
from streams.terminal_watch import Ending, TerminalWatch
from streams.trace_calls import TraceCalls

_PAUSE_S = 0.5


class RunlaneClient(RunCalls, ChildCalls, DeduplicatedCalls, LaunchCalls, TraceCalls, RateCalls):
    """A client of the coordinator, for one event loop; made once and used for many runs.

    Every command method takes `command_id` (default: a new one), `timeout` in seconds per attempt (default:
    the setting `command_timeout_s`) and `attempts`. All attempts of a call send the same command id, so the
    command takes effect once however often it arrives.
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
        self.sender = CommandSender(
            settings, reply_partition=reply_partition, delivery_timeout_s=delivery_timeout_s
        )
        """Commands of any type without typed answers: `send`, `call`, `begin` and `post`."""
        super().__init__(self.sender)
        self._readers: set[TopicReader] = set()
        self._watch: TerminalWatch | None = None

    async def open(self, patience_s: float | None = None) -> Self:
        """Connect, within `patience_s` (default: `command_timeout_s`); from then on no reply is missed.

        Raises `UserError` when the broker does not answer, or topics are missing.
        """
        await self.sender.open(patience_s)
        return self

    async def close(self, timeout_s: float = 5.0) -> None:
        """Send what is queued, for at most `timeout_s`, end all iterators, and disconnect."""
        if self._watch is not None:
            await self._watch.close()
        for reader in list(self._readers):
            await reader.close()
        await self.sender.close(timeout_s)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def events(
        self, run_id: str, *, from_seq: int = 1, follow: bool = True, since: int | None = None
    ) -> RunEvents:
        """A run's events from `from_seq` on, from the topic `run-events`; ends after the terminal event.

        Without `follow` it ends at the topic's end. `since` (ms since the epoch) spares reading what was
        written before that time: give one at which the run had not begun. Raises `EventsMissing` when an
        event is not in the topic. Leave it early by `async with`, or by its `aclose`.
        """
        key = run_id.encode()
        partition = partition_for(key, self._partitions())
        start: Start = "beginning" if since is None else since
        reader = self._reader(RUN_EVENTS, [partition], start, key)
        return RunEvents(reader, run_id, from_seq, follow=follow, whole_topic=since is None)

    def follow_events(self, *, start: Start = "beginning", follow: bool = True) -> AllEvents:
        """The events of all runs, from the `beginning`, the `end` or a time (ms since the epoch) on."""
        return AllEvents(self._reader(RUN_EVENTS, range(self._partitions()), start), follow=follow)

    def follow_terminals(self, *, start: Start = "beginning", follow: bool = True) -> Terminals:
        """The ends of all runs, from the `beginning`, the `end` or a time (ms since the epoch) on."""
        return Terminals(self._reader(RUN_TERMINALS, range(self._partitions()), start), follow=follow)

    async def launch(
        self,
        run_id: str,
        name: str,
        params: Any = None,
        *,
        sessions: Sequence[EncryptedSession] = (),
        pool: str | None = None,
        parent_run_id: str | None = None,
        max_attempts: int | None = None,
        base_url: str | None = None,
        command_id: str | None = None,
    ) -> Launched:
        """Start a run that can be started again: store its launch state, dispatch it, record its instance.

        Parameters are stripped of program code; over 64 KiB they go into the object store (setting
        `object_store`), over 8 MiB they are refused. The executor gets what was stored. The answer and the run's
        traces say how long each phase took. A run that was launched before is not started again, and keeps its
        launch state. `command_id` (at most 180 characters) is what the commands' ids are made of.

        Raises `LaunchStateNotStored` (`WORKFLOW_RETRY_STATE_PERSISTENCE_FAILED`): then nothing was dispatched.
        """
        return await launch(
            self,
            run_id,
            name,
            params,
            sessions=sessions,
            pool=pool,
            parent_run_id=parent_run_id,
            max_attempts=max_attempts,
            base_url=base_url,
            command_id=command_id,
        )

    async def read_params(self, params_ref: Any) -> Any:
        """The parameters that a reference (`paramsRef`) stands for, from the object store, checked.

        Raises `ParamsRefError` with what is wrong, and `ObjectStoreError`.
        """
        return await read_params(ObjectStore.of(self.settings), params_ref)

    async def wait_terminal(self, run_id: str, timeout: float | None = None) -> TerminalState:
        """How the run ended; waits for it, also when nobody has submitted the run yet.

        `timeout` in seconds, None: without end. Raises `EndTimeout`.

        It first watches the topic `run-terminals` and then asks the coordinator, so that no end is missed;
        one watch serves all who wait.
        """
        if self._watch is None:
            self._watch = TerminalWatch(self.follow_terminals(start="end"))
        asking: asyncio.Task[str] | None = None
        try:
            async with asyncio.timeout(timeout):
                await self._watch.start()
                with self._watch.expect(run_id) as ending:
                    asking = asyncio.create_task(self._ask_for_end(run_id, ending))
                    return await asyncio.shield(ending)
        except TimeoutError:
            known = "the coordinator did not answer either"
            if asking is not None and asking.done() and not asking.cancelled() and not asking.exception():
                known = asking.result()
            raise EndTimeout(run_id, timeout or 0.0, known) from None
        finally:
            if asking is not None:
                asking.cancel()

    async def _ask_for_end(self, run_id: str, ending: Ending) -> str:
        """Settle `ending` when the run has ended already; else say how it stands."""
        while not ending.done():
            try:
                terminal = await self.get_terminal(run_id)
                if terminal is None:
                    state = await self.status(run_id)
                    if not state.ended:
                        return f"it was {state.status} and had {state.latest_seq} events when asked"
                    terminal = await self._evicted_end(run_id)
            except (CommandTimeout, CommandNotDelivered):
                await asyncio.sleep(_PAUSE_S)
                continue
            except CommandRefused as refusal:
                return f"the coordinator said: {refusal.reason}"
            if not ending.done() and terminal is not None:
                ending.set_result(terminal)
            break
        return "it has ended, but its end is not in the topic"

    async def _evicted_end(self, run_id: str) -> TerminalState | None:
        """The end of a run that the coordinator keeps no more; the compacted topic has it."""
        key = run_id.encode()
        partition = partition_for(key, self._partitions())
        found = None
        async with Terminals(
            self._reader(RUN_TERMINALS, [partition], "beginning", key), follow=False
        ) as ends:
            async for terminal in ends:
                found = terminal
        return found

    def _partitions(self) -> int:
        return self.sender.partitions

    def _reader(
        self, spec: TopicSpec, partitions: range | list[int], start: Start, key: bytes | None = None
    ) -> TopicReader:
        name = self.settings.name(spec.name)
        reader = TopicReader(self.settings, name, partitions, start, key=key, on_close=self._readers.discard)
        self._readers.add(reader)
        return reader
