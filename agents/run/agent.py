"""The Faust agent of runs: it hands each fetched chunk of `run-commands` to the lane of its partition."""

from __future__ import annotations

from typing import Any

from schemas.topics import RUN_COMMANDS
from streams.worker_app import WorkerApp


def declare(worker: WorkerApp) -> None:
    """Declare the agent; all state and all outputs are the lane's."""

    @worker.agent(RUN_COMMANDS)
    async def run(stream: Any) -> None:
        async for event in stream.events():
            worker.route(event)
