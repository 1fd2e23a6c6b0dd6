"""What the executors of a torture execute: a few lines, a progress, and an end that the parameters decide."""

from __future__ import annotations

import asyncio

from streams.executor import Executor, Result, RunContext

NAME = "torture-steps"
PLACE = "streams.torture.executed_runs:app"
FAILURE = "meant to fail"

app = Executor(ignore_unknown=True)


def step_line(number: int) -> str:
    """The line that step `number` reports."""
    return f"step {number}"


@app.run(NAME)
async def take_steps(context: RunContext) -> Result:
    """Report `params.steps` steps, with `params.pauseMs` after each; fail when `params.fails` says so."""
    steps, pause_s = context.params["steps"], context.params["pauseMs"] / 1000
    for number in range(1, steps + 1):
        await context.log(step_line(number))
        await asyncio.sleep(pause_s)
    if context.params["fails"]:
        raise ValueError(FAILURE)
    return Result({"steps": steps}, total_rows=steps)
