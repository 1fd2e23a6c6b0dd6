"""`runlane schemas`: the JSON Schemas of the wire and of the stored records."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from streams.cli.session import session_of
from streams.user_errors import UserError

app = typer.Typer(help="JSON Schemas of all that is on the wire, for other languages.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `export` a subcommand while it is the only one."""


@app.command()
def export(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="Where to; default: the package's own folder."),
    ] = None,
) -> None:
    """Write the JSON Schema of every command, result, event, end, reply, dispatch and stored record.

    `topic.<topic>.json` describes a topic's values, `command.<type>.json` one command, `result.<type>.json`
    what its reply holds.
    """
    # Only this command needs it: it reads the models' sources.
    from schemas.export import exported

    session = session_of(context)
    target = folder or Path(str(resources.files("schemas").joinpath("exported")))
    files = exported()
    try:
        target.mkdir(parents=True, exist_ok=True)
        old = {path.name: path.read_bytes() for path in target.glob("*.json")}
        changed = [name for name, content in files.items() if old.get(name) != content]
        for name in changed:
            (target / name).write_bytes(files[name])
    except OSError as error:
        raise UserError(
            f"The schemas cannot be written to {target}: {error.strerror}.", "name a folder of yours"
        ) from error
    session.output.result(
        {"folder": target, "files": sorted(files), "changed": changed},
        lambda: f"[green]{len(files)} schemas[/green] in {escape(str(target))}, {len(changed)} changed",
    )
    if strangers := sorted(old.keys() - files.keys()):
        session.output.warn(f"not of this version: {', '.join(strangers)}")
