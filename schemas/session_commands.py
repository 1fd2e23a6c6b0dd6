"""The commands about a run's database sessions (spec coordinator 5, wire 7)."""

from __future__ import annotations

from typing import ClassVar, Literal

from schemas.commands import Command
from schemas.encrypted_sessions import EncryptedSessions
from schemas.lenient import clamped
from schemas.run_command import RunCommand

DEFAULT_SESSIONS_TTL_MS = 600_000

SessionsTtl = clamped(60_000, 1_800_000, DEFAULT_SESSIONS_TTL_MS)


class SessionsPut(RunCommand):
    """Store the run's database sessions, encrypted, instead of those it had."""

    type: Literal["sessions.put"]
    sessions: EncryptedSessions
    """At most 100; each that is not encrypted makes the command refused (`SESSION_NOT_ENCRYPTED`)."""
    ttl_ms: SessionsTtl = DEFAULT_SESSIONS_TTL_MS  # type: ignore[valid-type]
    """How long they are kept, limited to 60000..1800000 ms."""


class SessionsGet(RunCommand):
    """Ask for the run's database sessions; unknown or expired: `SESSIONS_NOT_FOUND`."""

    is_question: ClassVar[bool] = True

    type: Literal["sessions.get"]


SESSION_COMMANDS: tuple[type[Command], ...] = (SessionsPut, SessionsGet)
