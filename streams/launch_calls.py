"""The commands of launch state, sessions and instances as methods with typed answers (spec coordinator 5, wire 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Unpack

from schemas.encrypted_sessions import EncryptedSession
from schemas.errors import ErrorCode
from schemas.launch_results import (
    Instance,
    InstanceGetResult,
    InstancePutResult,
    LaunchPutResult,
    RetryClaimResult,
    RetryPutResult,
)
from schemas.session_results import SessionsGetResult, SessionsPutResult
from streams.client_errors import CommandRefused
from streams.command_methods import CallOptions, CommandMethods, R

_ASK_AGAIN_S = (0.025, 0.05, 0.1, 0.2)
"""Pauses before sessions that are not there (yet) are asked for again."""


class LaunchCalls(CommandMethods):
    """Commands about what a run was launched with, its database sessions, and its instance."""

    async def put_retry(
        self,
        run_id: str,
        params: Any = None,
        *,
        params_ref: Any = None,
        params_bytes: int | None = None,
        ttl_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> RetryPutResult:
        """Store what it takes to start a run again; putting again keeps the number of attempts."""
        fields = {"ttlMs": ttl_ms, "paramsBytes": params_bytes}
        return await self._put(RetryPutResult, "retry.put", run_id, params, params_ref, fields, options)

    async def claim_retry(
        self, run_id: str, max_attempts: int, **options: Unpack[CallOptions]
    ) -> RetryClaimResult:
        """Claim one more attempt at a run, and get what it takes to start it."""
        fields = {"maxAttempts": max_attempts}
        return await self._call(RetryClaimResult, "retry.claim", run_id, fields, options)

    async def put_launch(
        self,
        run_id: str,
        params: Any = None,
        *,
        sessions: Sequence[EncryptedSession] = (),
        params_ref: Any = None,
        params_bytes: int | None = None,
        retry_ttl_ms: int | None = None,
        sessions_ttl_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> LaunchPutResult:
        """Store the retry state and the run's database sessions: both or neither."""
        fields = {
            "paramsBytes": params_bytes,
            "sessions": sent_sessions(sessions),
            "retryTtlMs": retry_ttl_ms,
            "dbSessionsTtlMs": sessions_ttl_ms,
        }
        return await self._put(LaunchPutResult, "launch.put", run_id, params, params_ref, fields, options)

    async def put_sessions(
        self,
        run_id: str,
        sessions: Sequence[EncryptedSession],
        *,
        ttl_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> SessionsPutResult:
        """Store a run's database sessions instead of those it had; `KeyRing` encrypts them."""
        fields = {"sessions": sent_sessions(sessions), "ttlMs": ttl_ms}
        return await self._call(SessionsPutResult, "sessions.put", run_id, fields, options)

    async def get_sessions(self, run_id: str, **options: Unpack[CallOptions]) -> list[EncryptedSession]:
        """A run's database sessions. Asks again, 4 times within 375 ms, while there are none."""
        for pause_s in (*_ASK_AGAIN_S, None):
            try:
                answer = await self._call(SessionsGetResult, "sessions.get", run_id, {}, options)
                return answer.sessions
            except CommandRefused as refusal:
                if refusal.code != ErrorCode.SESSIONS_NOT_FOUND or pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
        raise AssertionError("the last question either answers or raises")

    async def put_instance(
        self,
        run_id: str,
        instance_id: str,
        *,
        attempt: int | None = None,
        ttl_ms: int | None = None,
        **options: Unpack[CallOptions],
    ) -> Instance:
        """Record which executor instance runs a run; with `attempt`, earlier ones may not write any more."""
        fields = {"instanceId": instance_id, "attempt": attempt, "ttlMs": ttl_ms}
        return (await self._call(InstancePutResult, "instance.put", run_id, fields, options)).instance

    async def get_instance(self, run_id: str, **options: Unpack[CallOptions]) -> Instance | None:
        """Which executor instance runs a run; None when that is not known, or not any more."""
        return (await self._call(InstanceGetResult, "instance.get", run_id, {}, options)).instance

    async def _put(
        self,
        answer: type[R],
        command_type: str,
        run_id: str,
        params: Any,
        params_ref: Any,
        fields: dict[str, Any],
        options: CallOptions,
    ) -> R:
        """Send launch state; a run without parameters says so by null, which is not the same as left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        given |= {"params": params} if params_ref is None else {"params": params, "paramsRef": params_ref}
        return answer.model_validate(await self._sender.call(command_type, run_id, given, **options))


def sent_sessions(sessions: Sequence[EncryptedSession]) -> list[dict[str, Any]]:
    """Sessions as they are sent. Raises `TypeError` for what is not encrypted, without showing it."""
    for session in sessions:
        if not isinstance(session, EncryptedSession):
            raise TypeError(f"a session is a {type(session).__name__}; encrypt it with a KeyRing first")
    return [session.model_dump(by_alias=True) for session in sessions]
