"""Arguments and options that several commands take."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from schemas.json_codec import InvalidJsonError, decode
from streams.user_errors import UserError


def sendable(parameter: typer.CallbackParam, value: str | None) -> str | None:
    """The text of a parameter; raises `UserError` when it is not UTF-8."""
    try:
        (value or "").encode()
    except UnicodeEncodeError:
        raise UserError(f"{_shown_name(parameter)} is not UTF-8: {value!r}.", exit_code=2) from None
    return value


def named(parameter: typer.CallbackParam, value: str | None) -> str | None:
    """As `sendable`, of a parameter that cannot be empty."""
    if value == "":
        raise UserError(f"{_shown_name(parameter)} is empty.", "it takes at least one character", exit_code=2)
    return sendable(parameter, value)


def _shown_name(parameter: typer.CallbackParam) -> str:
    option = parameter.opts[0]
    return option if option.startswith("-") else str(parameter.metavar or option)


RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.", callback=named)]
TimeoutOption = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="How long all of it may take. Default: for connecting and for the answer the setting "
        "command_timeout_s each; with --wait, for the run's end, for ever.",
    ),
]
CommandIdOption = Annotated[
    str | None,
    typer.Option(
        help="Id of the command; the same id again changes nothing. Default: a new one.", callback=named
    ),
]


def read_json(given: str, what: str, example: str) -> Any:
    """The value that an argument stands for: JSON, `@file`, or `@-` for standard input.

    `what` it is, and an `example` of it as one types it, are for the error: `UserError` when the file cannot be read or
    the text is not JSON as commands may carry it.
    """
    source = "the command line"
    try:
        if given == "@-":
            source, data = "standard input", sys.stdin.buffer.read()
        elif given.startswith("@"):
            source, data = given[1:], Path(given[1:]).read_bytes()
        else:
            data = given.encode("utf-8", "surrogateescape")
    except OSError as error:
        raise UserError(
            f"The JSON of the {what} cannot be read from {source}: {error.strerror}.", exit_code=2
        ) from error
    try:
        return decode(data)
    except InvalidJsonError as error:
        reason = str(error).removeprefix("the value is not JSON: ")
        raise UserError(
            f"The JSON of the {what} is wrong: {reason}, in {source}.",
            f"quote it for your shell, {example}, or name a file, @FILE",
            exit_code=2,
        ) from error
