"""`runlane settings`: every setting, its value in force, and where that comes from."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from streams.cli.output import table
from streams.cli.session import config_file, session_of
from streams.settings import Settings

app = typer.Typer()

_NO_SETTINGS = {"RUNLANE_CONFIG"}


@app.command("settings")
def print_settings(context: typer.Context) -> None:
    """List every setting with its value in force, where that comes from, and what it means.

    A setting comes from a flag, else the environment (RUNLANE_<NAME>), else the settings file, else its
    default.
    """
    session = session_of(context)
    settings = session.settings
    sources = setting_sources(session.overrides)
    described = [
        {
            "name": name,
            "variable": variable_of(name),
            "value": _plain(getattr(settings, name)),
            "source": sources[name],
            "description": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]
    rows = [
        (
            f"[bold]{item['variable']}[/bold]",
            escape("unset" if item["value"] is None else str(item["value"])),
            f"[dim]{item['source']}[/dim]"
            if item["source"] == "default"
            else f"[cyan]{item['source']}[/cyan]",
            escape(str(item["description"])),
        )
        for item in described
    ]
    session.output.result(described, lambda: table(("setting", "value", "from", "meaning"), rows))
    for name in unknown_variables():
        session.output.warn(f"{name} is set in the environment, but there is no such setting")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return f"RUNLANE_{name.upper()}"


def setting_sources(
    overrides: Mapping[str, Any], environment: Mapping[str, str] = os.environ, file: Path | None = None
) -> dict[str, str]:
    """Per setting where its value comes from: `flag`, `environment`, the file's name, or `default`."""
    file = file or config_file()
    in_file = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    variables = {name.upper() for name in environment}
    sources = {}
    for name in Settings.model_fields:
        if name in overrides:
            sources[name] = "flag"
        elif variable_of(name) in variables:
            sources[name] = "environment"
        elif name in in_file:
            sources[name] = file.name
        else:
            sources[name] = "default"
    return sources


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Variables that look like settings but are none: most likely misspelt."""
    known = {variable_of(name) for name in Settings.model_fields} | _NO_SETTINGS
    return sorted(name for name in environment if name.startswith("RUNLANE_") and name not in known)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value
