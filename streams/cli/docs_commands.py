"""`runlane docs`: the reference pages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from streams.cli.session import session_of
from streams.docs_pages import pages
from streams.user_errors import UserError

app = typer.Typer(
    help="Reference pages of commands, errors, settings and topics, as Markdown.", no_args_is_help=True
)


@app.callback()
def _group() -> None:
    """Keep `export` a subcommand while it is the only one."""


@app.command()
def export(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to; it is made when it is missing.")],
) -> None:
    """Write the reference pages of this version: commands.md, errors.md, settings.md, topics.md, verification.md."""
    session = session_of(context)
    made = pages()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in made.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"The pages cannot be written to {folder}: {error.strerror}.", "name a folder of yours"
        ) from error
    session.output.result(
        {"folder": folder, "files": sorted(made)},
        lambda: f"[green]{len(made)} pages[/green] in {escape(str(folder))}",
    )
