"""`runlane executor`: the process that executes runs."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from streams.cli.session import session_of
from streams.execution import process
from streams.terminal_text import one_line, printable

app = typer.Typer()


class _LineFormatter(logging.Formatter):
    """One line per message, and nothing that drives a terminal: run ids and names come from outside."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


@app.command()
def executor(
    context: typer.Context,
    place: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Where the Executor is, such as `jobs:app`.")
    ],
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="Runs executed at once (default: the setting executor_concurrency)."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Consumer group, shared by executors that share the runs (default: executor_group)."
        ),
    ] = None,
    ignore_unknown: Annotated[
        bool,
        typer.Option(
            "--ignore-unknown",
            help="Leave runs of other names to executors of other groups, instead of failing them.",
        ),
    ] = False,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Execute runs by the functions of a Python module, until told to stop (Ctrl-C or SIGTERM).

    Start as many as you like: executors of one group share the runs. One that is stopped gives back what it
    cannot finish in time; of one that dies, another takes over.
    """
    session = session_of(context)
    settings = session.settings_with(
        executor_concurrency=concurrency, executor_group=group, log_level=log_level
    )
    handler = logging.StreamHandler()
    handler.setFormatter(_LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    found = process.load_app(place)
    found.ignore_unknown = found.ignore_unknown or ignore_unknown
    process.run(found, settings)
