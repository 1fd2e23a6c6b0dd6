"""What the commands about traces answer (spec wire 7)."""

from __future__ import annotations

from typing import Any

from schemas.results import Result


class TraceAddResult(Result):
    """`trace.add`: how many traces of the run are kept now."""

    count: int
    """At most 200."""


class TraceListResult(Result):
    """`trace.list`: the kept traces."""

    traces: list[dict[str, Any]]
    """Sorted by `ts`; those of one `ts` in the order in which they came."""
    more: bool = False
    """Later ones were left out, since an answer holds 768 KiB of them."""


TRACE_RESULTS: dict[str, type[Result]] = {"trace.add": TraceAddResult, "trace.list": TraceListResult}
