"""The commands of the topic `run-commands`, keyed by run id (spec coordinator 10, wire 3 and 4)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import Discriminator, StringConstraints, TypeAdapter, model_validator

from schemas import topics
from schemas.call_commands import CALL_COMMANDS
from schemas.child_commands import CHILD_COMMANDS
from schemas.commands import Command, CommandSet
from schemas.encrypted_sessions import EncryptedSessions
from schemas.errors import ErrorCode
from schemas.events import EventInput, TerminalStatus
from schemas.inspect_commands import INSPECT_COMMANDS
from schemas.launch_commands import LAUNCH_COMMANDS
from schemas.lenient import Number, Text, clamped
from schemas.run_command import ExecutorCommand, RunCommand
from schemas.session_commands import SESSION_COMMANDS
from schemas.signal_commands import SIGNAL_COMMANDS
from schemas.trace_commands import TRACE_COMMANDS

MAX_LISTED_EVENTS = 500


class RunSubmit(RunCommand):
    """Start a run: dispatch it to an executor. The same run id again gets the stored answer."""

    type: Literal["run.submit"]
    name: Annotated[str, StringConstraints(min_length=1)]
    """Name of the function that executors registered."""
    params: Any = None
    """What the function gets, any JSON; not together with `paramsRef`."""
    params_ref: Any = None
    """A reference to parameters that are too large to be sent; the function gets it as it is."""
    sessions: EncryptedSessions | None = None
    """The run's database sessions, stored with the dispatch and kept for 10 minutes; as of `sessions.put`."""
    pool: Text = None
    """Passed on to the dispatch."""
    parent_run_id: Text = None
    """Passed on to the dispatch."""
    max_attempts: Number = None
    """Accepted, and without effect in this version."""
    callback_base_url: Text = None
    """As `baseUrl`, and counts before it."""
    base_url: Text = None
    """Where the executor may call back; passed on to the dispatch when it is http or https with no user, password,
    query, fragment or path, else ignored."""

    @model_validator(mode="after")
    def _one_kind_of_params(self) -> RunSubmit:
        if self.params is not None and self.params_ref is not None:
            raise ValueError("give params or paramsRef, not both")
        return self


class RunStatus(RunCommand):
    """Ask how a run stands; with `waitMs`, wait so long for its end."""

    is_question: ClassVar[bool] = True

    type: Literal["run.status"]
    wait_ms: clamped(0, 2000, 0) = 0  # type: ignore[valid-type]
    """How long to wait for the run's end, limited to 0..2000 ms."""
    trace: Any = None
    """1: the answer has `traces`."""


class RunCancel(RunCommand):
    """End a run as cancelled, unless it has ended; `reason` becomes the end's `error`."""

    type: Literal["run.cancel"]
    reason: Text = None
    """Becomes the `error` of the run's end."""


class RunFinish(RunCommand):
    """Evict what is stored about an ended run, 60 s from now."""

    type: Literal["run.finish"]


class EventsAppend(ExecutorCommand):
    """Append one event to the run's sequence."""

    field_codes: ClassVar[dict[str, ErrorCode]] = {"event": ErrorCode.INVALID_RUN_EVENT}

    type: Literal["events.append"]
    event: EventInput
    """A `status`, `log` or `progress` event; its own `seq` and `runId` are ignored."""


class EventsList(RunCommand):
    """Ask for kept events with `seq > afterSeq`; when there are none, wait so long for one."""

    is_question: ClassVar[bool] = True

    type: Literal["events.list"]
    after_seq: clamped(0, 2**62, 0) = 0  # type: ignore[valid-type]
    """Only events with a higher `seq`."""
    limit: clamped(1, MAX_LISTED_EVENTS, MAX_LISTED_EVENTS) = MAX_LISTED_EVENTS  # type: ignore[valid-type]
    """At most so many events, limited to 1..500."""
    timeout_ms: clamped(0, 30_000, 0) = 0  # type: ignore[valid-type]
    """How long to wait when there is none yet, limited to 0..30000 ms."""


class TerminalSet(ExecutorCommand):
    """End a run. The first end stands; the same again is answered as done."""

    type: Literal["terminal.set"]
    status: TerminalStatus
    """How the run ended."""
    result: Any = None
    """What came out, any JSON."""
    error: Text = None
    """Why it failed or was cancelled."""
    total_rows: Any = None
    """How many rows the result is about."""
    duration_ms: Any = None
    """How long the work took."""
    play_name: Text = None
    """Which workflow this was."""
    completed_at: Number = None
    """When it ended, in ms since the epoch; default: the command's time."""


class TerminalGet(RunCommand):
    """Ask how a run ended."""

    is_question: ClassVar[bool] = True

    type: Literal["terminal.get"]


MODELS: tuple[type[Command], ...] = (
    RunSubmit,
    RunStatus,
    RunCancel,
    RunFinish,
    EventsAppend,
    EventsList,
    TerminalSet,
    TerminalGet,
    *CHILD_COMMANDS,
    *CALL_COMMANDS,
    *LAUNCH_COMMANDS,
    *SESSION_COMMANDS,
    *TRACE_COMMANDS,
    *SIGNAL_COMMANDS,
    *INSPECT_COMMANDS,
)

AnyRunCommand: Any = Annotated[Union[(*MODELS,)], Discriminator("type")]

RUN_COMMANDS = CommandSet(
    topic=topics.RUN_COMMANDS.name,
    id_field=topics.RUN_COMMANDS.id_field or "",
    models=MODELS,
    adapter=TypeAdapter(AnyRunCommand),
)
