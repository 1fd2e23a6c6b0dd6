"""Signals that a run's function sends to runs (spec coordinator 9)."""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import Any

from schemas.dispatches import Dispatch
from schemas.json_codec import encode_canonical
from schemas.signal_results import SignalResult
from streams.client import RunlaneClient
from streams.execution.command_ids import CommandIds
from streams.execution.insistence import insist
from streams.execution.json_values import stored_form
from streams.execution.run_reporter import RunReporter, RunStopped


class RunSignals:
    """The signals of one execution. Executed again, it sends the same ones with the same command ids."""

    def __init__(self, client: RunlaneClient, dispatch: Dispatch, reporter: RunReporter) -> None:
        self._client = client
        self._run_id = dispatch.run_id
        self._reporter = reporter
        self._ids = CommandIds(dispatch)
        self._sent: Counter[str] = Counter()

    async def send(
        self, to_run: str, event_key: str | None, signal_type: str | None, payload: Any
    ) -> SignalResult:
        """Signal a run, and wait until the coordinator has it.

        Raises `CommandRefused` (`RUN_ENDED`) when that run is over, `RunStopped` when this one is, `TypeError` for a
        payload that is no JSON.
        """
        if self._reporter.over is not None:
            raise RunStopped(self._reporter.over)
        payload = stored_form(payload)
        # Signals that differ may be sent in any order; equal ones are counted.
        content = encode_canonical([to_run, event_key, signal_type, payload])
        digest = blake2b(content, digest_size=10).hexdigest()
        self._sent[digest] += 1
        return await insist(
            partial(self._client.signal, to_run, event_key, signal_type=signal_type, payload=payload),
            f"run {self._run_id}: a signal to run {to_run}",
            timeout_s=self._client.settings.command_timeout_s,
            command_id=self._ids.signal(digest, self._sent[digest]),
        )
