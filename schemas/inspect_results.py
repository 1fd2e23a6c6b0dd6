"""What `run.inspect` answers (spec wire 8). Contents that may be large or secret are not among it."""

from __future__ import annotations

from schemas.results import Result


class StoredPart(Result):
    """One kind of records."""

    what: str
    """`events`, `terminal`, `calls`, `callResults`, `children`, `retry`, `sessions`, `instance`, `traces`, `waits`."""
    records: int
    """How many there are; at most 1,000 are counted."""
    bytes: int
    """Of those that were counted: keys and values as they are stored, before compression."""
    more: bool = False
    """There are more than were counted."""


class InspectedChild(Result):
    """A named result that is stored for the run."""

    event_key: str
    """Its name."""
    stored_at: int | float
    """In ms since the epoch."""
    bytes: int
    """Of its JSON."""


class InspectedRetry(Result):
    """The retry state, without the parameters."""

    attempts: int
    """How many were claimed."""
    updated_at: int
    """In ms since the epoch."""
    expires_at: int
    """In ms since the epoch."""
    params_bytes: int
    """Of the JSON with `params` and `paramsRef`."""


class InspectedSessions(Result):
    """That the run has database sessions; not what they are."""

    session_count: int
    """How many."""
    expires_at: int
    """In ms since the epoch."""


class InspectedInstance(Result):
    """The executor instance that was recorded."""

    instance_id: str
    """Its id."""
    attempt: int | None
    """Null when it was put without."""
    expires_at: int
    """In ms since the epoch."""


class InspectedWait(Result):
    """A command that waits for an answer."""

    type: str
    """Of the command, such as `call.await`."""
    command_id: str
    """Of the command."""
    on: list[str]
    """`["events"]`, `["terminal"]`, `["child", <event key>]`, `["call", <tool id>, <input hash>]`."""
    owner: str | None = None
    """Who would take the call's lease; left out when nobody would."""


class InspectResult(Result):
    """`run.inspect`: all that is stored about a run. The calls themselves are listed by `call.debug`."""

    run_id: str
    """The run's id."""
    status: str | None
    """As `run.status` says it; null when only waits hang on a run that nobody has begun."""
    latest_seq: int
    """`seq` of the newest event."""
    first_seq: int
    """`seq` of the oldest event that is kept; 0 when none is."""
    submit_seq: int
    """`seq` of the event that the submit made; 0 when the run was never submitted."""
    attempt: int
    """The attempt that may write; 0 when the run was never submitted."""
    instance_id: str | None
    """The executor instance that may write; null when the run was never submitted."""
    ended_at: int | None
    """In ms since the epoch; null while it has not ended."""
    evicts_at: int | None
    """When it is evicted since it was finished, in ms since the epoch; null when it was not."""
    evicted: bool
    """Only its status and its `seq` are left."""
    calls: int
    """How many there are."""
    traces: int
    """How many there were; the newest 200 are kept."""
    waits: int
    """How many commands wait."""
    children: list[InspectedChild]
    """In the order of their names."""
    retry: InspectedRetry | None
    """Null when there is none."""
    sessions: InspectedSessions | None
    """Null when there are none."""
    instance: InspectedInstance | None
    """Null when none is recorded."""
    waiting: list[InspectedWait]
    """What waits, by what it waits for."""
    stored: list[StoredPart]
    """Everything, by its kind; kinds without records are left out."""
    more: bool = False
    """`children` or `waiting` were cut."""


INSPECT_RESULTS: dict[str, type[Result]] = {"run.inspect": InspectResult}
