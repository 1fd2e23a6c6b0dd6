"""`runlane broker`: a real Apache Kafka on this machine."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from streams.broker import local_broker
from streams.cli.output import facts, size
from streams.cli.session import session_of

app = typer.Typer(help="Start and stop a real Apache Kafka on this machine.", no_args_is_help=True)


@app.command()
def up(context: typer.Context) -> None:
    """Start the local broker, or find that it runs; returns when it can be used.

    The first time it downloads Apache Kafka (54 MB). Its data and its address stay over restarts.
    Others can run beside it, each in a folder of its own (RUNLANE_BROKER_DIR).
    """
    session = session_of(context)
    info = local_broker.up(session.settings, session.output.step)
    state = "started" if info.started_now else "runs already"
    session.output.result(
        info,
        lambda: (
            f"[green]Apache Kafka {info.version} {state}[/green] on [bold]{info.address}[/bold] "
            f"(process {info.pid}, folder {info.folder})"
        ),
    )


@app.command()
def down(
    context: typer.Context,
    delete_data: Annotated[
        bool, typer.Option("--delete-data", help="Delete its folder too: all topics and records.")
    ] = False,
) -> None:
    """Stop the local broker; its data stays unless told otherwise."""
    session = session_of(context)
    stopped = local_broker.down(session.settings)
    if delete_data:
        local_broker.remove(session.settings)
    text = ("stopped" if stopped else "did not run") + (", its data is deleted" if delete_data else "")
    session.output.result(
        {"stopped": stopped, "dataDeleted": delete_data}, lambda: f"The local broker {text}."
    )


@app.command()
def status(context: typer.Context) -> None:
    """Say whether the local broker runs and answers; exits 1 when it does not."""
    session = session_of(context)
    found = local_broker.status(session.settings)
    state = "[green]ready[/green]" if found.ready else "[yellow]runs, does not answer[/yellow]"
    session.output.result(
        found,
        lambda: facts(
            {
                "state": state if found.running else "[red]does not run[/red]",
                "address": found.address,
                "process": found.pid,
                "up for": None if found.uptime_s is None else f"{found.uptime_s:,.0f} s",
                "memory": None if found.resident_bytes is None else size(found.resident_bytes),
                "version": f"Apache Kafka {found.version}",
                "folder": found.folder,
                "log": found.log_file,
            }
        ),
    )
    if not found.ready:
        raise typer.Exit(1)


@app.command()
def logs(
    context: typer.Context,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, help="How many of the last lines.")] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written.")] = False,
) -> None:
    """Print the end of the local broker's log."""
    session = session_of(context)
    for line in local_broker.logs(session.settings, lines):
        typer.echo(line)
    if not follow:
        return
    with local_broker.status(session.settings).log_file.open(encoding="utf-8", errors="replace") as file:
        file.seek(0, 2)
        while True:
            typer.echo(file.read(), nl=False)
            time.sleep(0.3)
