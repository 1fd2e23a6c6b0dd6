"""The commands of the topic `run-commands`, keyed by run id (spec coordinator 10, wire 3 and 4)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, StringConstraints, TypeAdapter, model_validator

from schemas import topics
from schemas.commands import Command, CommandSet
from schemas.errors import ErrorCode
from schemas.events import EventInput, TerminalStatus
from schemas.lenient import Number, Text, clamped

MAX_LISTED_EVENTS = 500


class RunCommand(Command):
    """A command about one run; `runId` equals the record's key."""

    run_id: str


class ExecutorCommand(RunCommand):
    """A command that an executor sends on behalf of one attempt; clients leave both fields out."""

    instance_id: Text = None
    attempt: Number = None


class RunSubmit(RunCommand):
    """Start a run: dispatch it to an executor. The same run id again gets the stored answer."""

    type: Literal["run.submit"]
    name: Annotated[str, StringConstraints(min_length=1)]
    params: Any = None
    params_ref: Any = None
    sessions: Any = None
    pool: Text = None
    parent_run_id: Text = None
    max_attempts: Number = None

    @model_validator(mode="after")
    def _one_kind_of_params(self) -> RunSubmit:
        if self.params is not None and self.params_ref is not None:
            raise ValueError("give params or paramsRef, not both")
        if self.sessions is not None:
            raise ValueError("sessions are not accepted by this version; leave the field out")
        return self


class RunStatus(RunCommand):
    """Ask how a run stands; with `waitMs`, wait so long for its end."""

    is_question: ClassVar[bool] = True

    type: Literal["run.status"]
    wait_ms: clamped(0, 2000, 0) = 0  # type: ignore[valid-type]
    trace: Any = None


class RunCancel(RunCommand):
    """End a run as cancelled, unless it has ended; `reason` becomes the end's `error`."""

    type: Literal["run.cancel"]
    reason: Text = None


class RunFinish(RunCommand):
    """Evict what is stored about an ended run, 60 s from now."""

    type: Literal["run.finish"]


class EventsAppend(ExecutorCommand):
    """Append one event to the run's sequence."""

    field_codes: ClassVar[dict[str, ErrorCode]] = {"event": ErrorCode.INVALID_RUN_EVENT}

    type: Literal["events.append"]
    event: EventInput


class EventsList(RunCommand):
    """Ask for kept events with `seq > afterSeq`; when there are none, wait so long for one."""

    is_question: ClassVar[bool] = True

    type: Literal["events.list"]
    after_seq: clamped(0, 2**62, 0) = 0  # type: ignore[valid-type]
    limit: clamped(1, MAX_LISTED_EVENTS, MAX_LISTED_EVENTS) = MAX_LISTED_EVENTS  # type: ignore[valid-type]
    timeout_ms: clamped(0, 30_000, 0) = 0  # type: ignore[valid-type]


class TerminalSet(ExecutorCommand):
    """End a run. The first end stands; the same again is answered as done."""

    type: Literal["terminal.set"]
    status: TerminalStatus
    result: Any = None
    error: Text = None
    total_rows: Any = None
    duration_ms: Any = None
    play_name: Text = None
    completed_at: Number = None


class TerminalGet(RunCommand):
    """Ask how a run ended."""

    is_question: ClassVar[bool] = True

    type: Literal["terminal.get"]


AnyRunCommand = Annotated[
    RunSubmit | RunStatus | RunCancel | RunFinish | EventsAppend | EventsList | TerminalSet | TerminalGet,
    Discriminator("type"),
]

RUN_COMMANDS = CommandSet(
    topic=topics.RUN_COMMANDS.name,
    id_field=topics.RUN_COMMANDS.id_field or "",
    models=(RunSubmit, RunStatus, RunCancel, RunFinish, EventsAppend, EventsList, TerminalSet, TerminalGet),
    adapter=TypeAdapter(AnyRunCommand),
)
