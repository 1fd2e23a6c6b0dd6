"""The commands about what a run was launched with, and about its instance (spec coordinator 5, wire 7)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints

from schemas.commands import Command
from schemas.encrypted_sessions import EncryptedSessions
from schemas.json_numbers import JsonNumber
from schemas.lenient import Number, OrDefault, clamped
from schemas.run_command import RunCommand
from schemas.session_commands import DEFAULT_SESSIONS_TTL_MS, SessionsTtl

HOUR_MS = 3_600_000

MAX_RETRY_STATE_BYTES = 110_000
"""Of the JSON of a stored retry state, in UTF-8."""

StateTtl = clamped(60_000, HOUR_MS, HOUR_MS)

Attempt = Annotated[int | None, Field(ge=1), OrDefault()]


class _LaunchState(RunCommand):
    params: Any = None
    """The run's parameters, any JSON. They or `paramsRef` must be there, if only as null."""
    params_ref: Any = None
    """A reference to parameters that are too large to be kept here."""
    params_bytes: Number = None
    """How many bytes of JSON the parameters have; for those who read the state."""

    @property
    def has_params(self) -> bool:
        """Whether `params` or `paramsRef` is there, if only as null."""
        return not self.model_fields_set.isdisjoint({"params", "params_ref"})


class RetryPut(_LaunchState):
    """Store what it takes to start the run again. Putting again keeps the number of attempts."""

    type: Literal["retry.put"]
    ttl_ms: StateTtl = HOUR_MS  # type: ignore[valid-type]
    """How long it is kept, limited to 60000..3600000 ms."""


class RetryClaim(RunCommand):
    """Claim one more attempt at the run, and get what it takes to start it."""

    type: Literal["retry.claim"]
    max_attempts: JsonNumber
    """No more than so many attempts are given."""


class LaunchPut(_LaunchState):
    """Store the retry state and the run's database sessions: both or neither."""

    type: Literal["launch.put"]
    sessions: EncryptedSessions
    """As of `sessions.put`."""
    retry_ttl_ms: StateTtl = HOUR_MS  # type: ignore[valid-type]
    """How long the retry state is kept, limited to 60000..3600000 ms."""
    db_sessions_ttl_ms: SessionsTtl = DEFAULT_SESSIONS_TTL_MS
    """How long the sessions are kept, limited to 60000..1800000 ms."""


class InstancePut(RunCommand):
    """Record which executor instance runs the run.

    With `attempt`, commands of earlier attempts are refused from then on (`ATTEMPT_SUPERSEDED`).
    """

    type: Literal["instance.put"]
    instance_id: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """1..200 characters."""
    attempt: Attempt = None
    """Which attempt at the run it is, from 1; numbers only grow."""
    ttl_ms: StateTtl = HOUR_MS  # type: ignore[valid-type]
    """How long the record is kept, limited to 60000..3600000 ms."""


class InstanceGet(RunCommand):
    """Ask which executor instance runs the run."""

    is_question: ClassVar[bool] = True

    type: Literal["instance.get"]


LAUNCH_COMMANDS: tuple[type[Command], ...] = (RetryPut, RetryClaim, LaunchPut, InstancePut, InstanceGet)
