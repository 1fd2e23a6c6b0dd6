"""A run's database sessions, encrypted: `sessions.put`, `sessions.get` (spec coordinator 5, wire 7)."""

from __future__ import annotations

from collections.abc import Sequence

from agents.machine import Decision, FiredTimer, Request, View
from agents.run.known import make_known
from agents.run.refusals import run_ended
from agents.run.tables import HEADS, SESSIONS, UNKNOWN_RUN
from schemas.encrypted_sessions import EncryptedSession
from schemas.errors import ErrorCode
from schemas.json_codec import embed, encode
from schemas.session_commands import SessionsGet, SessionsPut
from schemas.stored_launch import sessions_record

EXPIRE_SESSIONS = "sessions"
"""The timer that removes expired sessions."""


def put_sessions(request: Request[SessionsPut], view: View) -> Decision:
    """`sessions.put`: these sessions instead of those that the run had."""
    run_id, command = request.key, request.command
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    decision = Decision()
    expires_at = request.now + command.ttl_ms
    store_sessions(decision, run_id, command.sessions, expires_at)
    make_known(decision, run_id, head)
    return decision.succeed({"sessionCount": len(command.sessions), "expiresAt": expires_at})


def get_sessions(request: Request[SessionsGet], view: View) -> Decision:
    """`sessions.get`: the sessions as they were stored."""
    stored = view.get(SESSIONS, request.key)
    if stored is None or stored.expires_at <= request.now:
        return Decision().refuse(
            ErrorCode.SESSIONS_NOT_FOUND, "the run has no database sessions, or they have expired"
        )
    return Decision().succeed({"sessions": embed(bytes(stored.sessions)), "expiresAt": stored.expires_at})


def store_sessions(
    decision: Decision, run_id: str, sessions: Sequence[EncryptedSession], expires_at: int
) -> None:
    """Keep a run's sessions until a time."""
    listed = encode([session.model_dump(by_alias=True) for session in sessions])
    decision.put(SESSIONS, (run_id,), sessions_record(len(sessions), expires_at, listed))
    decision.schedule(EXPIRE_SESSIONS, expires_at)


def expire(timer: FiredTimer, view: View) -> Decision:
    """Remove expired sessions."""
    decision = Decision()
    stored = view.get(SESSIONS, timer.key)
    if stored is not None and stored.expires_at <= timer.now:
        decision.delete(SESSIONS, (timer.key,))
    return decision


def evict_sessions(decision: Decision, run_id: str) -> None:
    """Remove the sessions of a run that is evicted."""
    decision.delete(SESSIONS, (run_id,))
    decision.cancel(EXPIRE_SESSIONS)
