"""`runlane submit`, `status` and `cancel`: start a run, ask how it stands, end it."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from typing import Annotated

import typer
from rich.text import Text

from schemas.run_results import SubmitResult
from schemas.terminals import TerminalState
from streams.cli.arguments import CommandIdOption, RunArgument, TimeoutOption, named, read_json, sendable
from streams.cli.client_work import with_client
from streams.cli.run_views import end_view, status_text, status_view
from streams.cli.session import Session, session_of
from streams.client import RunlaneClient
from streams.terminal_text import one_line

app = typer.Typer()

_NOT_COMPLETED = 1
_NAME_IN_ID = 60


@app.command()
def submit(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The function that an executor registered.", callback=named),
    ],
    run_id: Annotated[
        str | None,
        typer.Option(help="The run's id; the same again starts nothing. Default: a new one.", callback=named),
    ] = None,
    params: Annotated[
        str | None,
        typer.Option(metavar="JSON|@FILE", help="Its parameters as JSON, from a file, or (@-) stdin."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the run's end and show it.")] = False,
    timeout: TimeoutOption = None,
    command_id: CommandIdOption = None,
) -> None:
    """Start a run. With --wait, exits 1 unless the run completes.

    `runlane submit import-orders --params '{"day": "2025-01-31"}' --wait`
    """
    session = session_of(context)
    given = None if params is None else read_json(params, "parameters", "--params '{\"day\": 31}'")
    run_id = run_id or _new_run_id(name)
    time_left = _countdown(timeout)

    async def work(client: RunlaneClient) -> tuple[SubmitResult, TerminalState | None]:
        patience_s = time_left()
        if wait and patience_s is not None:
            patience_s = min(patience_s, session.settings.command_timeout_s)
        answer = await client.submit(run_id, name, given, command_id=command_id, timeout=patience_s)
        if not wait:
            return answer, None
        if not session.as_json:
            session.output.console.print(_submitted(answer))
        return answer, await _wait(session, client, run_id, time_left())

    answer, end = with_client(session, work, timeout)
    if end is None:
        session.output.result(answer, lambda: _submitted(answer))
        return
    both = {**answer.model_dump(mode="json", by_alias=True), "terminal": end}
    session.output.result(both, lambda: end_view(end))
    _exit_like(end)


@app.command()
def status(
    context: typer.Context,
    run_id: RunArgument,
    wait: Annotated[bool, typer.Option("--wait", "-w", help="Wait for the run's end and show it.")] = False,
    timeout: TimeoutOption = None,
) -> None:
    """Show how a run stands. With --wait, waits for its end and exits 1 unless it completed."""
    session = session_of(context)
    time_left = _countdown(timeout)
    if wait:
        end = with_client(session, lambda client: _wait(session, client, run_id, time_left()), timeout)
        session.output.result(end, lambda: end_view(end))
        _exit_like(end)
        return
    state = with_client(session, lambda client: client.status(run_id, timeout=time_left()), timeout)
    session.output.result(state, lambda: status_view(state))


@app.command()
def cancel(
    context: typer.Context,
    run_id: RunArgument,
    reason: Annotated[
        str | None,
        typer.Option(help="Why; observers see it as the `error` of the run's end.", callback=sendable),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="How long all of it may take (default: for connecting and for the answer the setting "
            "command_timeout_s each).",
        ),
    ] = None,
    command_id: CommandIdOption = None,
) -> None:
    """End a run as cancelled. One that has ended keeps its end, and that is shown.

    A run that nobody has submitted is stored as cancelled too, so that a submit which comes later is refused.
    The function that executes the run learns of it at its next report: one that reports nothing goes on.
    """
    session = session_of(context)
    command_id = command_id or str(uuid.uuid4())
    time_left = _countdown(timeout)
    answer = with_client(
        session,
        lambda client: client.cancel(run_id, reason, command_id=command_id, timeout=time_left()),
        timeout,
    )
    by_this = answer.terminal is not None and answer.terminal.command_id == command_id

    def view() -> Text:
        text = Text.assemble("Run ", (one_line(run_id), "bold"))
        text.append(" is " if by_this else " had ended before: it is ")
        return text.append_text(status_text(answer.status)).append(".")

    session.output.result(answer, view)


def _new_run_id(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-")[:_NAME_IN_ID]
    return f"{readable or 'run'}-{uuid.uuid4().hex[:12]}"


def _countdown(timeout: float | None) -> Callable[[], float | None]:
    """What is left of a command's time, in seconds, from now on; None: it has no limit."""
    if timeout is None:
        return lambda: None
    deadline = time.monotonic() + timeout
    return lambda: max(0.01, round(deadline - time.monotonic(), 2))


async def _wait(session: Session, client: RunlaneClient, run_id: str, timeout: float | None) -> TerminalState:
    with session.output.messages.status(f"waiting for the end of {run_id!r}"):
        return await client.wait_terminal(run_id, timeout)


def _exit_like(end: TerminalState) -> None:
    if end.status != "completed":
        raise typer.Exit(_NOT_COMPLETED)


def _submitted(answer: SubmitResult) -> Text:
    return Text.assemble(
        ("submitted ", "green"),
        (one_line(answer.run_id), "bold"),
        f"  (event {answer.seq}: {one_line(answer.status)})",
    )
