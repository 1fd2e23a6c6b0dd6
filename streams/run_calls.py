"""The commands of `run-commands` as methods with typed answers (spec wire 3, 4; coordinator 1, 2, 9)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from schemas.encrypted_sessions import EncryptedSession
from schemas.events import TerminalStatus
from schemas.inspect_results import InspectResult
from schemas.run_results import (
    AppendResult,
    CancelResult,
    FinishResult,
    ListResult,
    StatusResult,
    SubmitResult,
    TerminalGetResult,
    TerminalSetResult,
)
from schemas.terminals import TerminalState
from streams.command_methods import CallOptions, CommandMethods
from streams.launch_calls import sent_sessions


class RunCalls(CommandMethods):
    """Commands about runs."""

    async def submit(
        self,
        run_id: str,
        name: str,
        params: Any = None,
        *,
        params_ref: Any = None,
        pool: str | None = None,
        parent_run_id: str | None = None,
        max_attempts: int | None = None,
        sessions: Sequence[EncryptedSession] | None = None,
        base_url: str | None = None,
        **options: Unpack[CallOptions],
    ) -> SubmitResult:
        """Start a run: an executor that knows `name` gets it. The same run id again starts nothing.

        `sessions` are stored with the dispatch; `base_url` is passed on to the executor when it is a right one.
        """
        fields = {
            "name": name,
            "params": params,
            "paramsRef": params_ref,
            "pool": pool,
            "parentRunId": parent_run_id,
            "maxAttempts": max_attempts,
            "sessions": None if sessions is None else sent_sessions(sessions),
            "baseUrl": base_url,
        }
        return await self._call(SubmitResult, "run.submit", run_id, fields, options)

    async def status(
        self, run_id: str, *, wait_ms: int = 0, trace: bool = False, **options: Unpack[CallOptions]
    ) -> StatusResult:
        """How a run stands; with `wait_ms` (at most 2,000) the answer waits so long for its end."""
        fields = {"waitMs": wait_ms or None, "trace": 1 if trace else None}
        return await self._ask(StatusResult, "run.status", run_id, fields, wait_ms, options)

    async def inspect(self, run_id: str, **options: Unpack[CallOptions]) -> InspectResult:
        """All that is stored about a run, its sizes included; not parameters, results and sessions themselves."""
        return await self._call(InspectResult, "run.inspect", run_id, {}, options)

    async def cancel(
        self, run_id: str, reason: str | None = None, **options: Unpack[CallOptions]
    ) -> CancelResult:
        """End a run as cancelled; one that has ended keeps its end, which the answer holds."""
        return await self._call(CancelResult, "run.cancel", run_id, {"reason": reason}, options)

    async def finish(self, run_id: str, **options: Unpack[CallOptions]) -> FinishResult:
        """Have the coordinator forget an ended run soon; its events and its end stay in their topics."""
        return await self._call(FinishResult, "run.finish", run_id, {}, options)

    async def append_event(
        self,
        run_id: str,
        event: Mapping[str, Any],
        *,
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> AppendResult:
        """Append a `status`, `log` or `progress` event, given by its JSON fields.

        Executors say their `instance_id` and `attempt`; a superseded attempt is refused.
        """
        fields = {"event": dict(event), "instanceId": instance_id, "attempt": attempt}
        return await self._call(AppendResult, "events.append", run_id, fields, options)

    async def log(self, run_id: str, line: str, **options: Unpack[CallOptions]) -> AppendResult:
        """Append a `log` event."""
        return await self.append_event(run_id, log_event(line), **options)

    async def progress(
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
        event = progress_event(status, logs, active_node_id, active_artifact_table_namespace, updated_at)
        return await self.append_event(run_id, event, **options)

    async def set_status(
        self, run_id: str, status: str, *, logs: Sequence[str] | None = None, **options: Unpack[CallOptions]
    ) -> AppendResult:
        """Append a `status` event: the run's status in words. It does not end the run."""
        return await self.append_event(run_id, status_event(status, logs), **options)

    async def list_events(
        self,
        run_id: str,
        *,
        after_seq: int = 0,
        limit: int | None = None,
        timeout_ms: int = 0,
        **options: Unpack[CallOptions],
    ) -> ListResult:
        """Kept events (the newest 500) with `seq` over `after_seq`; when there is none, wait for one.

        It waits `timeout_ms`, at most 30,000. All of a run's events are in the topic: see `events`.
        """
        fields = {"afterSeq": after_seq, "limit": limit, "timeoutMs": timeout_ms or None}
        return await self._ask(ListResult, "events.list", run_id, fields, timeout_ms, options)

    async def set_terminal(
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
        instance_id: str | None = None,
        attempt: int | None = None,
        **options: Unpack[CallOptions],
    ) -> TerminalSetResult:
        """End a run. The first end stands: the same again is `repeated`, another is refused (`RUN_ENDED`)."""
        fields = {
            "status": status,
            "result": result,
            "error": error,
            "totalRows": total_rows,
            "durationMs": duration_ms,
            "playName": play_name,
            "completedAt": completed_at,
            "instanceId": instance_id,
            "attempt": attempt,
        }
        return await self._call(TerminalSetResult, "terminal.set", run_id, fields, options)

    async def complete(
        self, run_id: str, result: Any = None, *, total_rows: Any = None, **options: Unpack[CallOptions]
    ) -> TerminalSetResult:
        """End a run as completed."""
        return await self.set_terminal(run_id, "completed", result=result, total_rows=total_rows, **options)

    async def fail(self, run_id: str, error: str, **options: Unpack[CallOptions]) -> TerminalSetResult:
        """End a run as failed."""
        return await self.set_terminal(run_id, "failed", error=error, **options)

    async def get_terminal(self, run_id: str, **options: Unpack[CallOptions]) -> TerminalState | None:
        """How a run ended; None while it has not, and when it is not kept any more."""
        answer = await self._call(TerminalGetResult, "terminal.get", run_id, {}, options)
        return answer.terminal


def log_event(line: str) -> dict[str, Any]:
    """The fields of a `log` event."""
    return {"type": "log", "line": line}


def status_event(status: str, logs: Sequence[str] | None = None) -> dict[str, Any]:
    """The fields of a `status` event."""
    event: dict[str, Any] = {"type": "status", "status": status}
    return event if logs is None else {**event, "logs": list(logs)}


def progress_event(
    status: str,
    logs: Sequence[str] | None = None,
    active_node_id: str | None = None,
    active_artifact_table_namespace: str | None = None,
    updated_at: float | None = None,
) -> dict[str, Any]:
    """The fields of a `progress` event; what is not given is left out."""
    event = {
        "type": "progress",
        "status": status,
        "logs": None if logs is None else list(logs),
        "activeNodeId": active_node_id,
        "activeArtifactTableNamespace": active_artifact_table_namespace,
        "updatedAt": updated_at,
    }
    return {name: value for name, value in event.items() if value is not None}
