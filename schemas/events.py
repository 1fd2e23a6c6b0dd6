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
    """When it happened, in ms since the epoch; default: the command's time."""


class StatusEventInput(_Input):
    """A `status` event as a client sends it; of `logs` only the strings are kept."""

    type: Literal["status"]
    status: str
    """The run's status in words; it does not end the run."""
    logs: Items = None
    """Log lines."""


class LogEventInput(_Input):
    """A `log` event as a client sends it."""

    type: Literal["log"]
    line: str
    """The log line."""


class ProgressEventInput(_Input):
    """A `progress` event as a client sends it; an optional field of the wrong type is null."""

    type: Literal["progress"]
    status: str
    """How far the run is, in words."""
    logs: Items = None
    """Log lines; of the list only the strings are kept."""
    active_node_id: Text = None
    """The workflow's node that is at work."""
    active_artifact_table_namespace: Text = None
    """Where the node writes its tables."""
    updated_at: Number = None
    """When the progress was seen, in ms since the epoch."""


EventInput = Annotated[
    StatusEventInput | LogEventInput | ProgressEventInput,
    Discriminator("type"),
]


class _Event(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)

    seq: int
    """Position in the run's gapless sequence, from 1."""
    run_id: str
    """The run's id, as the record's key."""
    ts: int | float
    """Milliseconds since the epoch."""
    command_id: str
    """Id of the command that made the event; `timer:<name>` when a timer did."""


class StatusEvent(_Event):
    """The run's status in words; `logs` is left out when unset."""

    type: Literal["status"]
    status: str
    """The status in words; `running` when the run was submitted."""
    logs: list[str] | None = None
    """Log lines."""


class LogEvent(_Event):
    """One log line."""

    type: Literal["log"]
    line: str
    """The log line."""


class ProgressEvent(_Event):
    """How far the run is; all fields are always there, null when unset."""

    type: Literal["progress"]
    status: str
    """How far the run is, in words."""
    logs: list[str] | None
    """Log lines."""
    active_node_id: str | None
    """The workflow's node that is at work."""
    active_artifact_table_namespace: str | None
    """Where the node writes its tables."""
    updated_at: int | float | None
    """When the progress was seen, in ms since the epoch."""


class TerminalEvent(_Event):
    """The run's end, the last event of a run; all fields are always there, null when unset."""

    type: Literal["terminal"]
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


RunEvent = Annotated[
    StatusEvent | LogEvent | ProgressEvent | TerminalEvent,
    Discriminator("type"),
]
