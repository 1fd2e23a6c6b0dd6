"""What the commands about launch state and instances answer (spec wire 7)."""

from __future__ import annotations

from typing import Any

from schemas.results import Result


class RetryPutResult(Result):
    """`retry.put`: how large the stored state is, and until when it is kept."""

    bytes: int
    """Of the stored record's JSON, in UTF-8; at most 110,000."""
    expires_at: int
    """In ms since the epoch."""
    retry_attempts: int
    """Attempts that were claimed before; putting again keeps them."""


class RetryParams(Result):
    """What it takes to start a run again, as it was put; null what was left out."""

    params: Any = None
    """The run's parameters."""
    params_ref: Any = None
    """A reference to parameters that were too large."""
    params_bytes: int | float | None = None
    """How many bytes of JSON the parameters have."""


class RetryClaimResult(RetryParams):
    """`retry.claim`: whether an attempt was given, and the parameters; without a stored state there are none.

    When the answer comes again, large parameters in it are those that are stored by then.
    """

    claimed: bool
    """False when nothing is stored, or all attempts are used up."""
    attempts: int
    """Attempts that were claimed so far, this one included."""


class LaunchPutResult(Result):
    """`launch.put`: until when the retry state and the sessions are kept."""

    session_count: int
    """How many sessions were stored."""
    retry_expires_at: int
    """In ms since the epoch."""
    db_sessions_expires_at: int
    """In ms since the epoch."""


class Instance(Result):
    """Which executor instance runs a run."""

    instance_id: str
    """As it was put."""
    attempt: int | None
    """As it was put."""
    ttl_ms: int
    """How long the record was to be kept when it was put."""


class InstancePutResult(Result):
    """`instance.put`: the record as it is stored."""

    instance: Instance
    """As it is stored."""


class InstanceGetResult(Result):
    """`instance.get`: the record, null when there is none or when it has expired."""

    instance: Instance | None
    """Null when there is none."""


LAUNCH_RESULTS: dict[str, type[Result]] = {
    "retry.put": RetryPutResult,
    "retry.claim": RetryClaimResult,
    "launch.put": LaunchPutResult,
    "instance.put": InstancePutResult,
    "instance.get": InstanceGetResult,
}
