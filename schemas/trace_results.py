"""What the commands about traces answer (spec wire 7)."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from schemas.results import Result


class Trace(Result):
    """One step that took time, with whatever else was sent with it."""

    model_config = ConfigDict(extra="allow")

    source: Literal["coordinator", "dynamic_worker"]
    """Who took the time."""
    run_id: str
    """The run's id."""
    phase: str
    """What was done."""
    ts: int | float
    """When, in ms since the epoch."""
    ms: int | float
    """How long it took."""


class TraceAddResult(Result):
    """`trace.add`: how many traces of the run are kept now."""

    count: int
    """At most 200."""


class TraceListResult(Result):
    """`trace.list`: the kept traces."""

    traces: list[Trace]
    """Sorted by `ts`; those of one `ts` in the order in which they came."""
    more: bool = False
    """Later ones were left out, since an answer holds 768 KiB of them."""


TRACE_RESULTS: dict[str, type[Result]] = {"trace.add": TraceAddResult, "trace.list": TraceListResult}
