"""An executor app for tests that run it as a process of its own; files are what the processes share."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from streams.executor import Executor, RunContext, SyncRunContext

app = Executor()


@app.run("lines")
async def lines(context: RunContext) -> dict[str, Any]:
    """Logs `lines` lines, says that it is there, waits for a file, logs one more."""
    for number in range(context.params["lines"]):
        await context.log(f"line {number}")
    _arrive(context)
    await asyncio.to_thread(_wait, context)
    await context.log("through the gate")
    return {"lines": context.params["lines"]}


@app.run("call")
async def call(context: RunContext) -> int:
    """Executes one call, which says that it is there and waits for a file; its result is the process's id."""

    async def execute(given: Any) -> int:
        _arrive(context)
        if given["blocks"]:
            _wait(context)
        else:
            await asyncio.to_thread(_wait, context)
        return os.getpid()

    return int(await context.call("gated", context.params, execute, lease_s=context.params["leaseS"]))


@app.run("stubborn")
def stubborn(context: SyncRunContext) -> str:
    """A plain function that waits for a file and asks for nothing meanwhile."""
    context.log("waiting")
    _arrive(context)
    _wait(context)
    return "done"


def _wait(context: RunContext | SyncRunContext) -> None:
    while not Path(context.params["gate"]).exists():
        time.sleep(0.02)


def _arrive(context: RunContext | SyncRunContext) -> None:
    with Path(context.params["arrived"]).open("a") as file:
        file.write(f"{context.run_id}\n")
