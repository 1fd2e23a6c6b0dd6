"""What the commands about calls answer (spec coordinator 4, wire 7)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from schemas.results import Result


class CallOutcome(Result):
    """What was published of a call, as it is stored: one of the two."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"anyOf": [{"required": ["value"]}, {"required": ["error"]}]}
    )

    value: Any = None
    """The result of a call that succeeded."""
    error: Any = None
    """Why the call failed."""


class ClaimResult(Result):
    """`call.claim`: the published result (`hit`), the right to execute (`claimed`), or who has it (`pending`)."""

    status: Literal["hit", "claimed", "pending"]
    """Which of the three."""
    ok: bool | None = None
    """`hit`: whether the call succeeded."""
    value: Any = None
    """`hit` of a call that succeeded: its result."""
    error: Any = None
    """`hit` of a call that failed: why."""
    fencing_number: int | None = None
    """`claimed`: to be sent with `call.renew` and `call.publish`. Per call, it only grows."""
    owner: str | None = None
    """`pending`: who executes the call."""
    lease_expires_at: int | None = None
    """`claimed`, `pending`: until when nobody else gets the call, in ms since the epoch."""


class RenewResult(Result):
    """`call.renew`: until when nobody else gets the call."""

    lease_expires_at: int
    """In ms since the epoch."""


class PublishResult(Result):
    """`call.publish`: what became of the call."""

    published: bool
    """The call has this result from now on; false when it was released to be claimed again."""
    answered: int
    """How many who waited are answered by this."""


class AwaitResult(Result):
    """`call.await`: the published result (`hit`), the right to execute (`claimed`), or neither in time."""

    status: Literal["hit", "claimed", "timeout"]
    """Which of the three."""
    ok: bool | None = None
    """`hit`: whether the call succeeded."""
    value: Any = None
    """`hit` of a call that succeeded: its result."""
    error: Any = None
    """`hit` of a call that failed: why."""
    fencing_number: int | None = None
    """`claimed`: to be sent with `call.renew` and `call.publish`."""
    lease_expires_at: int | None = None
    """`claimed`: until when nobody else gets the call, in ms since the epoch."""


class CallEntry(Result):
    """One call of a run."""

    tool_id: str
    """Names the tool."""
    input_hash: str
    """Stands for the tool's input."""
    state: Literal["claimed", "expired", "released", "published", "failed"]
    """`claimed`: somebody executes it. `expired`: its lease ran out, and nobody else has it yet. `released`: it failed
    and may be claimed again. `published`, `failed`: its result is a value or an error."""
    fencing_number: int
    """Of its newest lease."""
    owner: str | None = None
    """Who has the lease, or had it when the result was published."""
    lease_expires_at: int | None = None
    """Of a call that is `claimed` or `expired`, in ms since the epoch."""


class CallsResult(Result):
    """`call.debug`: a run's calls in the order of tool and input hash."""

    size: int
    """How many calls the run has."""
    waiters: int
    """How many commands wait for calls of the run."""
    entries: list[CallEntry]
    """The calls, as many as fit into an answer."""
    more: bool = False
    """The run has more calls than `entries` holds."""


CALL_RESULTS: dict[str, type[Result]] = {
    "call.claim": ClaimResult,
    "call.renew": RenewResult,
    "call.publish": PublishResult,
    "call.await": AwaitResult,
    "call.debug": CallsResult,
}
