"""`runlane worker`: the process that applies commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from streams.cli.session import session_of

app = typer.Typer()


@app.command()
def worker(
    context: typer.Context,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of this worker's local state; never shared by two workers.")
    ] = None,
    web_port: Annotated[
        int | None, typer.Option(help="Port of /health/live, /health/ready and /metrics.")
    ] = None,
    web_host: Annotated[str | None, typer.Option(help="Address of that server.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Run a worker until it is told to stop (Ctrl-C or SIGTERM).

    Workers of one prefix share the partitions; start as many as you like, each with its own data folder and port.
    """
    # Faust and aiokafka take a while to import; only this command needs them.
    from streams import worker as worker_process

    session = session_of(context)
    worker_process.run(
        session.settings_with(data_dir=data_dir, web_port=web_port, web_host=web_host, log_level=log_level)
    )
