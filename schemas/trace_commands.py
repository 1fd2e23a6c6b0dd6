"""The commands about a run's traces: what was done when, and how long it took (spec coordinator 6, wire 7)."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from schemas.commands import Command
from schemas.errors import ErrorCode
from schemas.json_numbers import JsonNumber
from schemas.run_command import RunCommand

MAX_KEPT_TRACES = 200
MAX_TRACE_BYTES = 32 * 1024


class TraceInput(BaseModel):
    """One step that took time. Any further fields are kept; 32 KiB of JSON at most."""

    model_config = ConfigDict(alias_generator=to_camel, extra="allow", frozen=True, strict=True)

    source: Literal["coordinator", "dynamic_worker"]
    """Who took the time."""
    run_id: Any = None
    """May be left out; another run's trace is refused."""
    phase: str
    """What was done."""
    ts: JsonNumber
    """When, in ms since the epoch."""
    ms: JsonNumber
    """How long it took."""


class TraceAdd(RunCommand):
    """Keep a trace of the run; the newest 200 are kept. Accepted until the run is evicted."""

    field_codes: ClassVar[dict[str, ErrorCode]] = {"trace": ErrorCode.INVALID_TRACE}

    type: Literal["trace.add"]
    trace: TraceInput
    """What was done, when, and how long it took."""


class TraceList(RunCommand):
    """Ask for the run's traces, sorted by `ts`."""

    is_question: ClassVar[bool] = True

    type: Literal["trace.list"]


TRACE_COMMANDS: tuple[type[Command], ...] = (TraceAdd, TraceList)
