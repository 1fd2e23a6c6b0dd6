"""Launching a run: store its launch state, dispatch it, record its instance (spec coordinator 9)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.encrypted_sessions import EncryptedSession
from schemas.errors import ERRORS, ErrorCode
from schemas.json_codec import encode
from streams.client_errors import CommandNotDelivered, CommandRefused, CommandTimeout
from streams.launching.object_store import ObjectStore, ObjectStoreError
from streams.launching.params_spill import (
    SPILLED_OVER_BYTES,
    ParamsTooLargeError,
    require_size,
    write_params,
)
from streams.launching.stored_params import stored_params
from streams.trace_calls import trace_fields
from streams.user_errors import UserError

if TYPE_CHECKING:
    from streams.client import RunlaneClient

FAILED = ErrorCode.WORKFLOW_RETRY_STATE_PERSISTENCE_FAILED


class LaunchStateNotStored(UserError):
    """The launch state could not be stored, so the run was not dispatched. `__cause__` says why."""

    code = FAILED.value
    phase = "coordinator_retry_state_persistence"

    def __init__(self, run_id: str, cause: UserError) -> None:
        super().__init__(
            f"run {run_id!r} was not dispatched, since its launch state could not be stored: {cause.message}",
            cause.hint or ERRORS[FAILED].advice,
        )
        self.run_id = run_id

    def as_json(self) -> dict[str, Any]:
        """The error for machines, with its code and phase."""
        return {**super().as_json(), "code": self.code, "phase": self.phase, "runId": self.run_id}


@dataclass(frozen=True)
class Timing:
    """How long one phase of a launch took."""

    phase: str
    ms: float
    began_at: float
    """In ms since the epoch."""


@dataclass(frozen=True)
class Launched:
    """A run that was launched, now or before."""

    run_id: str
    instance_id: str
    status: str
    seq: int
    """`seq` of the run's `status` event `running`."""
    timings: tuple[Timing, ...]


class _Phases:
    def __init__(self) -> None:
        self.timings: list[Timing] = []

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began_at, began = time.time() * 1000, time.perf_counter()
        try:
            yield
        finally:
            self.timings.append(
                Timing(f"coordinator.{phase}", round((time.perf_counter() - began) * 1000, 3), began_at)
            )


async def launch(
    client: RunlaneClient,
    run_id: str,
    name: str,
    params: Any = None,
    *,
    sessions: Sequence[EncryptedSession] = (),
    pool: str | None = None,
    parent_run_id: str | None = None,
    max_attempts: int | None = None,
    base_url: str | None = None,
    command_id: str | None = None,
) -> Launched:
    """Store the launch state, dispatch the run, record its instance; see `RunlaneClient.launch`."""
    phase = _Phases()
    base = command_id or str(uuid.uuid4())
    with phase("launch_lookup"):
        launched_before = await client.get_instance(run_id) is not None
    try:
        with phase("submit_params"):
            kept = stored_params(params)
            data = encode(kept)
            require_size(len(data))
        ref = None
        if len(data) > SPILLED_OVER_BYTES:
            with phase("params_spill"):
                store = ObjectStore.of(client.settings)
                ref = (await write_params(store, run_id, data)).model_dump(by_alias=True)
            kept = None
        if not launched_before:
            with phase("retry_state_persistence"):
                await _store_state(client, run_id, kept, ref, len(data), sessions, f"{base}/state")
    except (
        ObjectStoreError,
        ParamsTooLargeError,
        CommandRefused,
        CommandTimeout,
        CommandNotDelivered,
    ) as error:
        raise LaunchStateNotStored(run_id, error) from error
    with phase("dispatch"):
        answer = await client.submit(
            run_id,
            name,
            kept,
            params_ref=ref,
            pool=pool,
            parent_run_id=parent_run_id,
            max_attempts=max_attempts,
            base_url=base_url,
            command_id=f"{base}/dispatch",
        )
    if not launched_before:
        with phase("instance_record"):
            await _record_instance(client, run_id, answer.instance_id, f"{base}/instance")
    for number, timing in enumerate(phase.timings):
        trace = trace_fields(timing.phase, timing.ms, ts=timing.began_at, source="coordinator")
        await client.sender.post("trace.add", run_id, {"trace": trace}, command_id=f"{base}/trace-{number}")
    return Launched(run_id, answer.instance_id, answer.status, answer.seq, tuple(phase.timings))


async def _store_state(
    client: RunlaneClient,
    run_id: str,
    params: Any,
    ref: dict[str, Any] | None,
    size: int,
    sessions: Sequence[EncryptedSession],
    command_id: str,
) -> None:
    try:
        if sessions:
            await client.put_launch(
                run_id, params, sessions=sessions, params_ref=ref, params_bytes=size, command_id=command_id
            )
        else:
            await client.put_retry(run_id, params, params_ref=ref, params_bytes=size, command_id=command_id)
    except CommandRefused as refusal:
        if refusal.code != ErrorCode.RUN_ENDED:
            raise
        # Whether a run that has ended was submitted before, the submit says.


async def _record_instance(client: RunlaneClient, run_id: str, instance_id: str, command_id: str) -> None:
    try:
        await client.put_instance(run_id, instance_id, attempt=1, command_id=command_id)
    except CommandRefused as refusal:
        # The run is over already, or a retry has taken over: then it is that one's to say.
        if refusal.code not in (ErrorCode.RUN_ENDED, ErrorCode.ATTEMPT_SUPERSEDED):
            raise
