"""What the commands of `run-commands` answer: the `result` of a reply, by command (spec wire 3)."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from schemas.terminals import TerminalState


class Result(BaseModel):
    """Base of the results; unknown fields are ignored, so that a newer coordinator can say more."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class SubmitResult(Result):
    """`run.submit`: the run is dispatched; the same again says the same."""

    run_id: str
    instance_id: str
    status: str
    seq: int
    """`seq` of the run's `status` event `running`."""


class StatusResult(Result):
    """`run.status`: how a run stands; all but `status` and `latest_seq` is null before its end."""

    run_id: str
    status: str
    """`running`, `sleeping`, `completed`, `failed` or `cancelled`."""
    result: Any = None
    error: str | None = None
    total_rows: Any = None
    duration_ms: Any = None
    latest_seq: int
    """`seq` of the run's newest event."""
    wait: Any = None
    traces: list[Any] | None = None

    @property
    def ended(self) -> bool:
        """Whether the run has ended; an end stands for ever."""
        return self.status in ("completed", "failed", "cancelled")


class CancelResult(Result):
    """`run.cancel`: how the run ended, by this or before."""

    status: str
    terminal: TerminalState | None = None


class FinishResult(Result):
    """`run.finish`: when what is stored about the run goes, in ms since the epoch."""

    evicts_at: int


class AppendResult(Result):
    """`events.append`: the event's place in the run's sequence, and its time in ms since the epoch."""

    seq: int
    ts: int | float


class ListResult(Result):
    """`events.list`: kept events in the order of their `seq`, as `run-events` holds them."""

    events: list[dict[str, Any]]
    latest_seq: int
    first_seq: int
    """The oldest kept event's `seq`; 0 when none is kept."""
    more: bool = False
    """Kept events with a higher `seq` were left out: ask again from the last one."""


class TerminalSetResult(Result):
    """`terminal.set`: the run's end; `repeated` when it had been set before."""

    terminal: TerminalState
    repeated: bool


class TerminalGetResult(Result):
    """`terminal.get`: the run's end, null while there is none or when it is evicted."""

    terminal: TerminalState | None


RUN_RESULTS: Final[dict[str, type[Result]]] = {
    "run.submit": SubmitResult,
    "run.status": StatusResult,
    "run.cancel": CancelResult,
    "run.finish": FinishResult,
    "events.append": AppendResult,
    "events.list": ListResult,
    "terminal.set": TerminalSetResult,
    "terminal.get": TerminalGetResult,
}
"""What each command answers, by its type."""
