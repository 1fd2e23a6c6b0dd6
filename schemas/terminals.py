"""Terminal states: how a run ended, on the compacted topic `run-terminals` (spec coordinator 2, wire 3)."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from schemas.events import TerminalStatus


class TerminalState(BaseModel):
    """A run's end. It has exactly these fields, null when unset; the first one of a run stands for ever."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    run_id: str
    seq: int
    """`seq` of the terminal event, the run's last."""
    status: TerminalStatus
    result: Any
    error: str | None
    total_rows: Any
    duration_ms: Any
    play_name: str | None
    completed_at: int | float
    """Milliseconds since the epoch; also the terminal event's `ts`."""
    command_id: str
