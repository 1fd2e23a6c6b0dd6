"""The commands of child results as methods with typed answers (spec coordinator 3, wire 7)."""

from __future__ import annotations

from typing import Any, Unpack

from schemas.child_results import ChildResult, ChildSetResult, ChildState
from streams.command_methods import CallOptions, CommandMethods


class ChildCalls(CommandMethods):
    """Commands about named results that a run waits for."""

    async def set_child(
        self,
        run_id: str,
        event_key: str,
        data: Any = None,
        *,
        stored_at: float | None = None,
        **options: Unpack[CallOptions],
    ) -> ChildState | None:
        """Store a named result for a run, and answer all who wait for it. Set again, the new one stands.

        Returns what is stored. None only when a command that is sent again finds the run evicted.
        """
        fields = {"eventKey": event_key, "data": data, "storedAt": stored_at}
        answer = await self._call(ChildSetResult, "child.terminal.set", run_id, fields, options)
        return answer.state

    async def get_child(
        self, run_id: str, event_key: str, **options: Unpack[CallOptions]
    ) -> ChildState | None:
        """A named result of a run; None while there is none, and when it is not kept any more."""
        fields = {"eventKey": event_key}
        return (await self._call(ChildResult, "child.terminal.get", run_id, fields, options)).state

    async def await_child(
        self,
        run_id: str,
        event_key: str,
        *,
        timeout_ms: int = 30_000,
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> ChildState | None:
        """A named result of a run; waits for it up to `timeout_ms` (at most 30,000), then None.

        None at once when the run has ended without it. The run's executor says its `instance_id` and `attempt`: then
        the run is `sleeping` meanwhile, and a superseded attempt is refused.
        """
        fields = {
            "eventKey": event_key,
            "timeoutMs": timeout_ms,
            "instanceId": instance_id,
            "attempt": attempt,
        }
        answer = await self._ask(ChildResult, "child.terminal.await", run_id, fields, timeout_ms, options)
        return answer.state
