"""What a lane stores about how a run was launched; see `schemas.stored`."""

from __future__ import annotations

import msgspec

from schemas.stored import Stored


class StoredRetry(Stored, frozen=True):
    """How often a run was tried again. Table `run.retry`, key (run id); its parameters are in `run.retry_params`."""

    updated_at: int
    """In milliseconds since the epoch."""
    expires_at: int
    """In milliseconds since the epoch."""
    attempts: int = 0
    """Attempts that were claimed."""


class StoredSessions(Stored, frozen=True):
    """A run's database sessions. Table `run.sessions`, key (run id)."""

    count: int
    expires_at: int
    """In milliseconds since the epoch."""
    sessions: msgspec.Raw
    """A list of encrypted sessions, as JSON."""


def sessions_record(count: int, expires_at: int, sessions: bytes) -> StoredSessions:
    """The record of so many sessions, listed in JSON."""
    return StoredSessions(count=count, expires_at=expires_at, sessions=msgspec.Raw(sessions))


class StoredInstance(Stored, frozen=True):
    """Which executor instance runs a run. Table `run.instance`, key (run id)."""

    instance_id: str
    ttl_ms: int
    expires_at: int
    """In milliseconds since the epoch."""
    attempt: int | None = None
