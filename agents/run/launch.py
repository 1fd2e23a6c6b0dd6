"""What it takes to start a run again: `retry.put`, `retry.claim`, `launch.put` (spec coordinator 5, wire 7)."""

from __future__ import annotations

from typing import Any

from agents.machine import Decision, FiredTimer, Request, View
from agents.run.known import make_known
from agents.run.refusals import run_ended
from agents.run.sessions import store_sessions
from agents.run.tables import HEADS, RETRIES, RETRY_PARAMS, UNKNOWN_RUN
from schemas.errors import ErrorCode
from schemas.json_codec import decode, encode
from schemas.launch_commands import HOUR_MS, MAX_RETRY_STATE_BYTES, LaunchPut, RetryClaim, RetryPut
from schemas.stored import replace
from schemas.stored_launch import StoredRetry

EXPIRE_RETRY = "retry"
"""The timer that removes an expired retry state."""

PARAMS = "retry"
"""What an answer holds by reference, with the field behind a colon: the parameters as they are stored."""

_MAX_REMEMBERED_BYTES = 1024
_NONE = StoredRetry(updated_at=0, expires_at=0)


def put_retry(request: Request[RetryPut], view: View) -> Decision:
    """`retry.put`: store the parameters; attempts that were claimed stay counted."""
    decision = Decision()
    stored = _put(decision, request, view, request.command.ttl_ms)
    if stored is not None:
        retry, size = stored
        decision.succeed({"bytes": size, "expiresAt": retry.expires_at, "retryAttempts": retry.attempts})
    return decision


def put_launch(request: Request[LaunchPut], view: View) -> Decision:
    """`launch.put`: store the parameters and the sessions, both or neither."""
    command = request.command
    decision = Decision()
    stored = _put(decision, request, view, command.retry_ttl_ms)
    if stored is not None:
        sessions_expire_at = request.now + command.db_sessions_ttl_ms
        store_sessions(decision, request.key, command.sessions, sessions_expire_at)
        decision.succeed(
            {
                "sessionCount": len(command.sessions),
                "retryExpiresAt": stored[0].expires_at,
                "dbSessionsExpiresAt": sessions_expire_at,
            }
        )
    return decision


def claim_retry(request: Request[RetryClaim], view: View) -> Decision:
    """`retry.claim`: one attempt more, if one is left, and what it takes to start it."""
    run_id, now = request.key, request.now
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        return run_ended(run_id, head, view)
    decision = Decision()
    retry, params = _retry(view, run_id, now), view.get(RETRY_PARAMS, run_id)
    if retry is _NONE or params is None:
        return decision.succeed({"claimed": False, "attempts": 0})
    claimed = retry.attempts < request.command.max_attempts
    if claimed:
        retry = replace(retry, attempts=retry.attempts + 1, updated_at=now, expires_at=now + HOUR_MS)
        _store(decision, run_id, retry)
    result = {"claimed": claimed, "attempts": retry.attempts, **decode(params)}
    if len(params) <= _MAX_REMEMBERED_BYTES:
        return decision.succeed(result)
    return decision.succeed(result, **{name: f"{PARAMS}:{name}" for name in ("params", "paramsRef")})


def recall(name: str, run_id: str, view: View) -> Any:
    """The present value of a field of the stored parameters; None when they are gone."""
    params = view.get(RETRY_PARAMS, run_id)
    return None if params is None else decode(params)[name]


def expire(timer: FiredTimer, view: View) -> Decision:
    """Remove an expired retry state."""
    decision = Decision()
    retry = view.get(RETRIES, timer.key)
    if retry is not None and retry.expires_at <= timer.now:
        _delete(decision, timer.key)
    return decision


def evict_launch_state(decision: Decision, run_id: str) -> None:
    """Remove the retry state of a run that is evicted."""
    _delete(decision, run_id)
    decision.cancel(EXPIRE_RETRY)


def _put(
    decision: Decision, request: Request[RetryPut] | Request[LaunchPut], view: View, ttl_ms: int
) -> tuple[StoredRetry, int] | None:
    """Store the retry state; returns it and its parameters' size, or refuses and returns None."""
    run_id, command, now = request.key, request.command, request.now
    head = view.get(HEADS, run_id) or UNKNOWN_RUN
    if head.ended_at is not None:
        decision.answer = run_ended(run_id, head, view).answer
        return None
    if not command.has_params:
        decision.refuse(
            ErrorCode.RETRY_STATE_REQUIRED, "`params` or `paramsRef` has to be there, if only as null"
        )
        return None
    params = encode(
        {"params": command.params, "paramsRef": command.params_ref, "paramsBytes": command.params_bytes}
    )
    if len(params) > MAX_RETRY_STATE_BYTES:
        decision.refuse(
            ErrorCode.RETRY_STATE_TOO_LARGE,
            f"the retry state would have {len(params)} bytes; at most {MAX_RETRY_STATE_BYTES} are kept",
            bytes=len(params),
            maxBytes=MAX_RETRY_STATE_BYTES,
        )
        return None
    before = _retry(view, run_id, now)
    retry = StoredRetry(updated_at=now, expires_at=now + ttl_ms, attempts=before.attempts)
    decision.put(RETRY_PARAMS, (run_id,), params)
    _store(decision, run_id, retry)
    make_known(decision, run_id, head)
    return retry, len(params)


def _retry(view: View, run_id: str, now: int) -> StoredRetry:
    retry = view.get(RETRIES, run_id)
    return retry if retry is not None and retry.expires_at > now else _NONE


def _store(decision: Decision, run_id: str, retry: StoredRetry) -> None:
    decision.put(RETRIES, (run_id,), retry)
    decision.schedule(EXPIRE_RETRY, retry.expires_at)


def _delete(decision: Decision, run_id: str) -> None:
    decision.delete(RETRIES, (run_id,))
    decision.delete(RETRY_PARAMS, (run_id,))
