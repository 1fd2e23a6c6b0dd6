"""The commands by which a call is executed once within a run (spec coordinator 4, wire 7).

A call is named by its tool and the hash of its input. Who claims it gets a lease with a fencing number, executes
it, and publishes its result under that number.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from schemas.commands import Command
from schemas.lenient import Flag, OrDefault, clamped
from schemas.names import Name, Owner
from schemas.run_command import ExecutorCommand, RunCommand

DEFAULT_LEASE_MS = 300_000
MAX_LEASE_MS = 3_600_000

FencingNumber = Annotated[int, Field(ge=1)]
OnFailure = Literal["keep", "release"]


class CallCommand(RunCommand):
    """A command about one call of a run."""

    tool_id: Name
    """Names the tool, 1..512 bytes of UTF-8."""
    input_hash: Name
    """Stands for the tool's input, 1..512 bytes of UTF-8."""


class CallClaim(ExecutorCommand, CallCommand):
    """Get a call's result, or the right to execute it, or hear who executes it."""

    type: Literal["call.claim"]
    owner: Owner
    """Who would execute it, 1..200 characters; others are told."""
    lease_ms: clamped(1000, MAX_LEASE_MS, DEFAULT_LEASE_MS) = DEFAULT_LEASE_MS  # type: ignore[valid-type]
    """How long the right lasts, limited to 1000..3600000 ms."""


class CallRenew(ExecutorCommand, CallCommand):
    """Keep the right to execute a call for longer."""

    type: Literal["call.renew"]
    fencing_number: FencingNumber
    """From the claim. When another one holds by now, it is refused (`CALL_FENCED`)."""
    lease_ms: clamped(1000, MAX_LEASE_MS, DEFAULT_LEASE_MS) = DEFAULT_LEASE_MS  # type: ignore[valid-type]
    """How long the right lasts from now on, limited to 1000..3600000 ms."""


class CallPublish(CallCommand):
    """Publish a call's result, and answer all who wait for it. Accepted until the run is evicted."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": ["value"]}, {"required": ["error"]}]})

    type: Literal["call.publish"]
    fencing_number: FencingNumber
    """From the claim. When another one holds by now, it is refused (`CALL_FENCED`)."""
    value: Any = None
    """The result of a call that succeeded, any JSON; either this or `error`."""
    error: Any = None
    """Why the call failed, any JSON but null."""
    on_failure: Annotated[OnFailure, OrDefault("keep")] = "keep"
    """With `error`. `keep`: the error is the call's result. `release`: the call may be claimed again."""

    @model_validator(mode="after")
    def _value_or_error(self) -> CallPublish:
        if self.error is None and "value" not in self.model_fields_set:
            raise ValueError("give the value, or the error")
        if self.error is not None and self.value is not None:
            raise ValueError("give the value or the error, not both")
        return self


class CallAwait(ExecutorCommand, CallCommand):
    """Wait for a call's result; with `claim`, also for the right to execute it."""

    is_question: ClassVar[bool] = True

    type: Literal["call.await"]
    timeout_ms: clamped(0, 30_000, 0) = 0  # type: ignore[valid-type]
    """How long to wait, limited to 0..30000 ms."""
    claim: Flag = False
    """Take the right when nobody has it any more; of those who wait so, the longest waiting one gets it."""
    owner: Annotated[Owner | None, OrDefault()] = None
    """With `claim`: who would execute the call, 1..200 characters."""
    lease_ms: clamped(1000, MAX_LEASE_MS, DEFAULT_LEASE_MS) = DEFAULT_LEASE_MS  # type: ignore[valid-type]
    """With `claim`: how long the right lasts, limited to 1000..3600000 ms."""

    @model_validator(mode="after")
    def _claims_for_somebody(self) -> CallAwait:
        if self.claim and self.owner is None:
            raise ValueError("claim needs an owner of 1..200 characters")
        return self


class CallDebug(RunCommand):
    """List a run's calls and how they stand."""

    is_question: ClassVar[bool] = True

    type: Literal["call.debug"]


CALL_COMMANDS: tuple[type[Command], ...] = (CallClaim, CallRenew, CallPublish, CallAwait, CallDebug)
