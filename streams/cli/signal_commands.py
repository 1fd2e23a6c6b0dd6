"""`runlane signal`: tell a run that something happened outside."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from schemas.signal_results import SignalResult
from streams.cli.arguments import CommandIdOption, RunArgument, TimeoutOption, named, read_json, sendable
from streams.cli.client_work import with_client
from streams.cli.session import session_of
from streams.terminal_text import one_line

app = typer.Typer()


@app.command()
def signal(
    context: typer.Context,
    run_id: RunArgument,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="What the run waits for by `wait_for(NAME)`.", callback=named),
    ],
    payload: Annotated[
        str | None,
        typer.Argument(metavar="[JSON|@FILE]", help="What it gets: JSON, from a file, or (@-) stdin."),
    ] = None,
    signal_type: Annotated[
        str | None,
        typer.Option(
            "--type",
            help="The signal's type, if it is no integration event: then the run waits for the type, not for NAME.",
            callback=sendable,
        ),
    ] = None,
    timeout: TimeoutOption = None,
    command_id: CommandIdOption = None,
) -> None:
    """Tell a run that something happened; whoever waits for NAME there gets the JSON (default: null).

    `runlane signal orders-1 approval '{"by": "zoe"}'`
    """
    session = session_of(context)
    given = None if payload is None else read_json(payload, "payload", '\'{"by": "zoe"}\'')
    answer = with_client(
        session,
        lambda client: client.signal(
            run_id, name, signal_type=signal_type, payload=given, command_id=command_id, timeout=timeout
        ),
        timeout,
    )
    session.output.result(answer, lambda: _signalled(run_id, name, answer))


def _signalled(run_id: str, name: str, answer: SignalResult) -> Text:
    waits_for = name if answer.stored else answer.signal_type
    return Text.assemble(
        ("signalled ", "green"),
        (one_line(run_id), "bold"),
        f"  (as {answer.signal_type}: wait_for({one_line(waits_for)!r}) gets it)",
    )
