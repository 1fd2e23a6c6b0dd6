"""What a run was given: its parameters, also those that were too large to be sent, and its database sessions."""

from __future__ import annotations

from functools import partial
from typing import Any

from schemas.dispatches import Dispatch
from streams.client import RunlaneClient
from streams.execution.insistence import Pauses, insist
from streams.execution.known_secrets import KnownSecrets
from streams.execution.run_reporter import RunReporter, RunStopped
from streams.launching.object_store import ObjectStoreError
from streams.launching.session_keys import KeyRing, SessionKeyError


async def read_run_params(client: RunlaneClient, dispatch: Dispatch) -> Any:
    """The run's parameters; those that a launch put into the object store are read from there and checked.

    A reference of another form is the application's own, and its function's to read: then None.
    Raises `ParamsRefError` for parameters that are gone or were changed, `ObjectStoreError` when the store still
    does not answer after the pauses of repeated reports, or is not configured.
    """
    ref = dispatch.params_ref
    if not isinstance(ref, dict) or "storageKind" not in ref:
        return dispatch.params
    pauses = Pauses()
    while True:
        try:
            return await client.read_params(ref)
        except ObjectStoreError:
            if client.settings.object_store is None or pauses.are_over:
                raise
        await pauses.take()


class RunSessions:
    """A run's database sessions, decrypted for its function and for nobody else."""

    def __init__(
        self,
        client: RunlaneClient,
        dispatch: Dispatch,
        reporter: RunReporter,
        keys: KeyRing | None,
        secrets: KnownSecrets,
    ) -> None:
        self._client = client
        self._run_id = dispatch.run_id
        self._reporter = reporter
        self._keys = keys
        self._secrets = secrets

    async def decrypted(self) -> dict[str, Any]:
        """The sessions by their names, as they are stored now.

        Raises `SessionKeyError` without the right keys, `CommandRefused` (`SESSIONS_NOT_FOUND`) when the run has
        none or they have expired, `RunStopped` when the run is over.
        """
        if self._reporter.over is not None:
            raise RunStopped(self._reporter.over)
        if self._keys is None:
            raise SessionKeyError(
                "this executor has no keys for database sessions",
                "give it a key ring: Executor(session_keys=KeyRing.parse(...))",
            )
        sessions = await insist(
            partial(self._client.get_sessions, self._run_id),
            f"run {self._run_id}: the question for its sessions",
            timeout_s=self._client.settings.command_timeout_s,
        )
        found = {session.name: self._keys.decrypt(self._run_id, session) for session in sessions}
        for session in found.values():
            self._secrets.learn(session)
        return found
