"""What the commands about database sessions answer (spec wire 7)."""

from __future__ import annotations

from schemas.encrypted_sessions import EncryptedSession
from schemas.results import Result


class SessionsPutResult(Result):
    """`sessions.put`: how many sessions the run has now, and until when."""

    session_count: int
    """How many were stored."""
    expires_at: int
    """In ms since the epoch."""


class SessionsGetResult(Result):
    """`sessions.get`: the run's sessions, as they were stored."""

    sessions: list[EncryptedSession]
    """In the order in which they were stored."""
    expires_at: int
    """In ms since the epoch."""


SESSION_RESULTS: dict[str, type[Result]] = {
    "sessions.put": SessionsPutResult,
    "sessions.get": SessionsGetResult,
}
