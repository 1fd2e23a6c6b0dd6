"""`runlane settings`: every setting, its value in force, and where that comes from."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import typer
from pydantic import SecretStr, ValidationError
from pydantic_settings import SettingsConfigDict
from rich.markup import escape

from streams.cli.output import Output, table
from streams.cli.session import config_file, session_of
from streams.settings import Settings
from streams.user_errors import UserError

app = typer.Typer()

_NO_SETTINGS = {"RUNLANE_CONFIG"}


@app.command("settings")
def print_settings(context: typer.Context) -> None:
    """List every setting with its value in force, where that comes from, and what it means.

    A setting comes from a flag, else the environment (RUNLANE_<NAME>), else the settings file, else its
    default. Wrong ones are listed with their defaults, and then named; the command exits 2.
    """
    session = session_of(context)
    problem = None
    try:
        settings = session.settings
    except UserError as error:
        if not isinstance(error.__cause__, ValidationError):
            raise
        problem, settings = error, _without_wrong_ones(session.overrides, error.__cause__)
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
    if problem is not None:
        raise problem


class _AnyFile(Settings):
    """Settings from a file that may hold names which are none."""

    model_config = SettingsConfigDict(extra="ignore")


def _without_wrong_ones(overrides: Mapping[str, Any], error: ValidationError) -> Settings:
    """The settings in force with the defaults of the wrong ones in their places."""
    wrong = {str(item["loc"][0]) for item in error.errors()} & Settings.model_fields.keys()
    defaults = {
        name: Settings.model_fields[name].get_default(call_default_factory=True, validated_data={})
        for name in wrong
    }
    return _AnyFile(**{**overrides, **defaults})


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
    return sorted(name for name in environment if name.startswith("RUNLANE_") and name.upper() not in known)


def warn_of_unknown_variables(output: Output) -> None:
    """Name each misspelt variable, and the setting that was most likely meant."""
    for name in unknown_variables():
        near = get_close_matches(name, map(variable_of, Settings.model_fields), n=1)
        meant = f"; did you mean {near[0]}?" if near else ": `runlane settings` lists all"
        output.warn(f"{name} is set in the environment, but there is no such setting{meant}")


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path | SecretStr) else value
