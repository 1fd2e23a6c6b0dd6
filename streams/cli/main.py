"""The command line `runlane`: global flags, and the commands of the modules beside this one."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from streams.cli import (
    bench_commands,
    broker_commands,
    call_commands,
    dead_letter_commands,
    demo_commands,
    docs_commands,
    executor_commands,
    inspect_commands,
    log_tail_commands,
    rate_commands,
    run_commands,
    schema_commands,
    settings_commands,
    signal_commands,
    topics_commands,
    torture_commands,
    trace_commands,
    verify_commands,
    watch_commands,
    worker_commands,
)
from streams.cli.session import Session, session_of
from streams.user_errors import UserError

app = typer.Typer(
    name="runlane",
    help="Coordinate workflow runs on Apache Kafka: exactly once from command to event.",
    epilog="Global options may stand anywhere in the line. `runlane settings` lists every setting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(run_commands.app)
app.add_typer(watch_commands.app)
app.add_typer(call_commands.app)
app.add_typer(trace_commands.app)
app.add_typer(inspect_commands.app)
app.add_typer(signal_commands.app)
app.add_typer(rate_commands.app, name="rates")
app.add_typer(dead_letter_commands.app, name="dead-letters")
app.add_typer(broker_commands.app, name="broker")
app.add_typer(topics_commands.app, name="topics")
app.add_typer(verify_commands.app)
app.add_typer(schema_commands.app, name="schemas")
app.add_typer(docs_commands.app, name="docs")
app.add_typer(settings_commands.app)
app.add_typer(worker_commands.app)
app.add_typer(executor_commands.app)
app.add_typer(log_tail_commands.app)
app.add_typer(bench_commands.app, name="bench")
app.add_typer(demo_commands.app)
app.add_typer(torture_commands.app)

_SWITCHES = {"--json", "--debug"}
_OPTIONS = {"--brokers", "--prefix", "--config"}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `runlane`; exits 0 when it worked, 1 when it failed, 2 when it was asked wrongly."""
    session = Session()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        app(args=global_flags_first(given), prog_name="runlane", obj=session)
    except UserError as error:
        if session.debug:
            raise
        session.output.error(error)
        sys.exit(max(error.exit_code, session.failure_code))
    except Exception as error:
        if session.debug:
            raise
        session.output.error(
            UserError(
                f"unexpected {type(error).__name__}: {error}",
                "this is a fault of runlane; --debug shows where it comes from",
            )
        )
        sys.exit(session.failure_code)


def global_flags_first(arguments: list[str]) -> list[str]:
    """The arguments with the global flags moved to the front, up to a `--`."""
    front: list[str] = []
    rest: list[str] = []
    position = 0
    while position < len(arguments):
        argument = arguments[position]
        if argument == "--":
            return [*front, *rest, *arguments[position:]]
        if argument in _OPTIONS:
            front += arguments[position : position + 2]
            position += 2
            continue
        is_global = argument in _SWITCHES or argument.partition("=")[0] in _OPTIONS
        (front if is_global else rest).append(argument)
        position += 1
    return [*front, *rest]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"runlane {version('runlane')}")
        raise typer.Exit


@app.callback()
def _global_flags(
    context: typer.Context,
    brokers: Annotated[
        str | None,
        typer.Option(
            help="Kafka bootstrap servers, host:port,...; default: the local broker.", metavar="HOSTS"
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="Prefix of topics, consumer group and transactional ids.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings file; default: runlane.toml here.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON, for machines.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    session = session_of(context)
    session.as_json, session.debug = as_json, debug
    given = {"brokers": brokers, "prefix": prefix}
    session.overrides.update({name: value for name, value in given.items() if value is not None})
    if config is not None:
        os.environ["RUNLANE_CONFIG"] = str(config)
    settings_commands.warn_of_unknown_variables(session.output)
