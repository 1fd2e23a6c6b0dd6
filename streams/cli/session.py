"""What every command of the command line shares: the global flags, the settings, the output."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from streams.cli.output import Output
from streams.settings import Settings
from streams.user_errors import UserError


@dataclass
class Session:
    """One invocation of the command line."""

    overrides: dict[str, Any] = field(default_factory=dict)
    """Settings given by global flags."""
    as_json: bool = False
    debug: bool = False
    failure_code: int = 1
    """Exit code when the command fails; higher for one whose results have an exit code of their own."""

    @cached_property
    def output(self) -> Output:
        """Where results and messages go."""
        return Output(as_json=self.as_json)

    @cached_property
    def settings(self) -> Settings:
        """The settings in force; raises `UserError` that names each wrong one."""
        return load_settings(**self.overrides)

    def settings_with(self, **overrides: Any) -> Settings:
        """The settings in force with a command's own flags over them; None means not given."""
        given = {name: value for name, value in overrides.items() if value is not None}
        return load_settings(**{**self.overrides, **given})


def session_of(context: typer.Context) -> Session:
    """The session of a running command."""
    session = context.find_object(Session)
    if session is None:
        raise RuntimeError("the command line was not started by streams.cli.main")
    return session


def config_file() -> Path:
    """The settings file in force, whether it exists or not."""
    return Path(os.environ.get("RUNLANE_CONFIG", "runlane.toml"))


def load_settings(**overrides: Any) -> Settings:
    """Settings from flags, environment, file and defaults; raises `UserError` for wrong ones."""
    file = config_file()
    if "RUNLANE_CONFIG" in os.environ and not file.exists():
        raise UserError(
            f"The settings file {file} does not exist.", "correct --config or RUNLANE_CONFIG", exit_code=2
        )
    try:
        return Settings(**overrides)
    except ValidationError as error:
        problems = [_explain(str(item["loc"][0]), item["type"], item["msg"]) for item in error.errors()]
        raise UserError(
            "; ".join(problems) + ".",
            "`runlane settings` and docs/reference/settings.md list all settings",
            exit_code=2,
        ) from error
    except ValueError as error:
        raise UserError(f"The settings file {file} is not TOML: {error}.", exit_code=2) from error


def _explain(name: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"{config_file()} has {name!r}, which is no setting"
    return f"The setting {name} (RUNLANE_{name.upper()}) is wrong: {message}"
