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
    """The run's id, as the record's key."""
    seq: int
    """`seq` of the terminal event, the run's last."""
    status: TerminalStatus
    """How the run ended."""
    result: Any
    """What came out."""
    error: str | None
    """Why it failed or was cancelled."""
    total_rows: Any
    """How many rows the result is about."""
    duration_ms: Any
    """How long the work took."""
    play_name: str | None
    """Which workflow this was."""
    completed_at: int | float
    """Milliseconds since the epoch; also the terminal event's `ts`."""
    command_id: str
    """Id of the command that ended the run; `timer:<name>` when a timer did."""
