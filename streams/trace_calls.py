"""The commands of traces and signals as methods with typed answers (spec coordinator 6 and 9, wire 7)."""

from __future__ import annotations

import time
from typing import Any, Literal, Unpack

from schemas.signal_results import SignalResult
from schemas.trace_results import TraceAddResult, TraceListResult
from streams.command_methods import CallOptions, CommandMethods


class TraceCalls(CommandMethods):
    """Commands about a run's traces, and signals."""

    async def add_trace(
        self,
        run_id: str,
        phase: str,
        ms: float,
        *,
        ts: float | None = None,
        source: Literal["coordinator", "dynamic_worker"] = "dynamic_worker",
        more: dict[str, Any] | None = None,
        **options: Unpack[CallOptions],
    ) -> int:
        """Keep a trace: `phase` took `ms`, from `ts` on (ms since the epoch; default: it has just ended).

        `more` holds any further fields. Returns how many traces are kept now.
        """
        trace = trace_fields(phase, ms, ts=ts, source=source, more=more)
        return (await self._call(TraceAddResult, "trace.add", run_id, {"trace": trace}, options)).count

    async def list_traces(self, run_id: str, **options: Unpack[CallOptions]) -> TraceListResult:
        """The newest 200 traces of a run, sorted by `ts`."""
        return await self._call(TraceListResult, "trace.list", run_id, {}, options)

    async def signal(
        self,
        run_id: str,
        event_key: str | None = None,
        *,
        signal_type: str | None = None,
        payload: Any = None,
        **options: Unpack[CallOptions],
    ) -> SignalResult:
        """Tell a run that something happened outside; whoever waits for it gets the payload."""
        fields = {"eventKey": event_key, "signalType": signal_type, "payload": payload}
        return await self._call(SignalResult, "run.signal", run_id, fields, options)


def trace_fields(
    phase: str,
    ms: float,
    *,
    ts: float | None = None,
    source: Literal["coordinator", "dynamic_worker"] = "dynamic_worker",
    more: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The fields of a trace; see `TraceCalls.add_trace`."""
    began = time.time() * 1000 - ms if ts is None else ts
    return {**(more or {}), "source": source, "phase": phase, "ts": began, "ms": ms}
