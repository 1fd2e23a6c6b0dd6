"""What the commands of `run-commands` answer: the `result` of a reply, by command (spec wire 3)."""

from __future__ import annotations

from typing import Any, Final

from schemas.call_results import CALL_RESULTS
from schemas.child_results import CHILD_RESULTS
from schemas.inspect_results import INSPECT_RESULTS
from schemas.launch_results import LAUNCH_RESULTS
from schemas.results import Result
from schemas.session_results import SESSION_RESULTS
from schemas.signal_results import SIGNAL_RESULTS
from schemas.terminals import TerminalState
from schemas.trace_results import TRACE_RESULTS, Trace


class SubmitResult(Result):
    """`run.submit`: the run is dispatched; the same again says the same."""

    run_id: str
    """The run's id."""
    instance_id: str
    """The instance that the dispatch names."""
    status: str
    """`running`."""
    seq: int
    """`seq` of the run's `status` event `running`."""


class StatusResult(Result):
    """`run.status`: how a run stands; what belongs to the end is null before it."""

    run_id: str
    """The run's id."""
    status: str
    """`running`, `sleeping` (its function waits for results), `completed`, `failed` or `cancelled`."""
    result: Any = None
    """The end's."""
    error: str | None = None
    """The end's."""
    total_rows: Any = None
    """The end's."""
    duration_ms: Any = None
    """The end's."""
    latest_seq: int
    """`seq` of the run's newest event."""
    wait: Any = None
    """What a sleeping run waits for: `kind` and `eventKeys`, at most 20; left out when it does not sleep."""
    traces: list[Trace] | None = None
    """Only there when asked for by `trace`; sorted by `ts`."""
    more: bool = False
    """Later traces were left out, since an answer holds 768 KiB of them, less beside a large end."""

    @property
    def ended(self) -> bool:
        """Whether the run has ended; an end stands for ever."""
        return self.status in ("completed", "failed", "cancelled")


class CancelResult(Result):
    """`run.cancel`: how the run ended, by this or before."""

    status: str
    """How the run ended."""
    terminal: TerminalState | None = None
    """The run's end."""


class FinishResult(Result):
    """`run.finish`: when what is stored about the run goes, in ms since the epoch."""

    evicts_at: int
    """In ms since the epoch."""


class AppendResult(Result):
    """`events.append`: the event's place in the run's sequence, and its time in ms since the epoch."""

    seq: int
    """The event's place in the run's sequence."""
    ts: int | float
    """The event's time, in ms since the epoch."""


class ListResult(Result):
    """`events.list`: kept events in the order of their `seq`, as `run-events` holds them."""

    events: list[dict[str, Any]]
    """In the order of their `seq`."""
    latest_seq: int
    """`seq` of the run's newest event; 0 for an unknown run."""
    first_seq: int
    """The oldest kept event's `seq`; 0 when none is kept."""
    more: bool = False
    """Kept events with a higher `seq` were left out: ask again from the last one."""


class TerminalSetResult(Result):
    """`terminal.set`: the run's end; `repeated` when it had been set before."""

    terminal: TerminalState
    """The run's end, as it is stored."""
    repeated: bool
    """The same end had been set before."""


class TerminalGetResult(Result):
    """`terminal.get`: the run's end, null while there is none or when it is evicted."""

    terminal: TerminalState | None
    """The run's end."""


RUN_RESULTS: Final[dict[str, type[Result]]] = {
    "run.submit": SubmitResult,
    "run.status": StatusResult,
    "run.cancel": CancelResult,
    "run.finish": FinishResult,
    "events.append": AppendResult,
    "events.list": ListResult,
    "terminal.set": TerminalSetResult,
    "terminal.get": TerminalGetResult,
    **CHILD_RESULTS,
    **CALL_RESULTS,
    **LAUNCH_RESULTS,
    **SESSION_RESULTS,
    **TRACE_RESULTS,
    **SIGNAL_RESULTS,
    **INSPECT_RESULTS,
}
"""What each command answers, by its type."""
