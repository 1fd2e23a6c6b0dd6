"""The Faust agent of rate buckets: it hands each fetched chunk of `rate-commands` to the lane of its partition."""

from __future__ import annotations

from typing import Any

from schemas.topics import RATE_COMMANDS
from streams.worker_app import WorkerApp


def declare(worker: WorkerApp) -> None:
    """Declare the agent; all state and all outputs are the lane's."""

    @worker.agent(RATE_COMMANDS)
    async def rate(stream: Any) -> None:
        async for event in stream.events():
            worker.route(event)
