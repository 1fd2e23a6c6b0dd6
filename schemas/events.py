"""Run events: what `events.append` may carry, and what the topic `run-events` holds (spec coordinator 1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator
from pydantic.alias_generators import to_camel

from schemas.lenient import Items, Number, Text

TerminalStatus = Literal["completed", "failed", "cancelled"]


class _Input(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True, strict=True)

    ts: Number = None


class StatusEventInput(_Input):
    """A `status` event as a client sends it; of `logs` only the strings are kept."""

    type: Literal["status"]
    status: str
    logs: Items = None


class LogEventInput(_Input):
    """A `log` event as a client sends it."""

    type: Literal["log"]
    line: str


class ProgressEventInput(_Input):
    """A `progress` event as a client sends it; an optional field of the wrong type is null."""

    type: Literal["progress"]
    status: str
    logs: Items = None
    active_node_id: Text = None
    active_artifact_table_namespace: Text = None
    updated_at: Number = None


EventInput = Annotated[
    StatusEventInput | LogEventInput | ProgressEventInput,
    Discriminator("type"),
]


class _Event(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    seq: int
    """Position in the run's gapless sequence, from 1."""
    run_id: str
    ts: int | float
    """Milliseconds since the epoch."""
    command_id: str
    """Id of the command that made the event; `timer:<name>` when a timer did."""


class StatusEvent(_Event):
    """The run's status in words; `logs` is left out when unset."""

    type: Literal["status"]
    status: str
    logs: list[str] | None = None


class LogEvent(_Event):
    """One log line."""

    type: Literal["log"]
    line: str


class ProgressEvent(_Event):
    """How far the run is; all fields are always there, null when unset."""

    type: Literal["progress"]
    status: str
    logs: list[str] | None
    active_node_id: str | None
    active_artifact_table_namespace: str | None
    updated_at: int | float | None


class TerminalEvent(_Event):
    """The run's end, the last event of a run; all fields are always there, null when unset."""

    type: Literal["terminal"]
    status: TerminalStatus
    result: Any
    error: str | None
    total_rows: Any
    duration_ms: Any
    play_name: str | None


RunEvent = Annotated[
    StatusEvent | LogEvent | ProgressEvent | TerminalEvent,
    Discriminator("type"),
]
