"""Settings: precedence, messages for wrong ones, and the documented list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from streams.cli.main import global_flags_first, main
from streams.cli.session import load_settings
from streams.cli.settings_commands import setting_sources, unknown_variables, variable_of
from streams.settings import Settings
from streams.user_errors import UserError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A settings file in force that sets three settings."""
    path = tmp_path / "runlane.toml"
    path.write_text('prefix = "file"\npartitions = 8\nweb_port = 7000\n')
    monkeypatch.setenv("RUNLANE_CONFIG", str(path))
    return path


def test_flag_over_environment_over_file_over_default(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNLANE_PARTITIONS", "6")
    monkeypatch.setenv("RUNLANE_PREFIX", "environment")
    settings = load_settings(prefix="flag")
    assert (settings.prefix, settings.partitions, settings.web_port) == ("flag", 6, 7000)
    assert settings.max_batch_commands == 4000
    sources = setting_sources({"prefix": "flag"})
    assert [sources[name] for name in ("prefix", "partitions", "web_port", "max_batch_commands")] == [
        "flag",
        "environment",
        "runlane.toml",
        "default",
    ]


def test_names_have_the_prefix_unless_it_is_empty() -> None:
    assert Settings(prefix="").name("run-events") == "run-events"
    assert Settings(prefix="shop").name("lane-0-1") == "shop-lane-0-1"
    with pytest.raises(ValidationError):
        Settings(prefix="not a topic name")


def test_a_wrong_value_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNLANE_PARTITIONS", "0")
    with pytest.raises(UserError, match=r"RUNLANE_PARTITIONS.*greater than or equal to 1") as refused:
        load_settings()
    assert refused.value.exit_code == 2


def test_an_unknown_name_in_the_file_is_refused(file: Path) -> None:
    file.write_text("partitons = 8\n")
    with pytest.raises(UserError, match=r"runlane\.toml has 'partitons', which is no setting"):
        load_settings()


def test_a_file_that_is_missing_or_not_toml_is_refused(file: Path) -> None:
    file.write_text("partitions: 8\n")
    with pytest.raises(UserError, match="not TOML"):
        load_settings()
    file.unlink()
    with pytest.raises(UserError, match="does not exist"):
        load_settings()


def test_every_setting_is_documented() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_misspelt_variables_are_found() -> None:
    environment = {"RUNLANE_PARTITONS": "8", "RUNLANE_PARTITIONS": "8", "RUNLANE_CONFIG": "x", "HOME": "/"}
    assert unknown_variables(environment) == ["RUNLANE_PARTITONS"]


def test_the_command_lists_values_and_sources(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["settings", "--json", "--prefix", "flag"])
    assert exit_.value.code == 0
    listed = {item["variable"]: item for item in json.loads(capsys.readouterr().out)}
    assert set(listed) == {variable_of(name) for name in Settings.model_fields}
    assert (listed["RUNLANE_PREFIX"]["value"], listed["RUNLANE_PREFIX"]["source"]) == ("flag", "flag")
    assert (listed["RUNLANE_PARTITIONS"]["value"], listed["RUNLANE_PARTITIONS"]["source"]) == (
        8,
        "runlane.toml",
    )


def test_wrong_settings_are_listed_and_named(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('prefix = "file"\npartitons = 8\n')
    monkeypatch.setenv("RUNLANE_WEB_PORT", "x")
    monkeypatch.setenv("RUNLANE_PREFX", "typo")
    with pytest.raises(SystemExit) as exit_:
        main(["settings", "--json"])
    assert exit_.value.code == 2
    said = capsys.readouterr()
    values = {item["name"]: item["value"] for item in json.loads(said.out)}
    assert (values["prefix"], values["web_port"], values["partitions"]) == ("file", 6066, 4)
    warning, error = said.err.splitlines()
    assert warning.endswith(
        "RUNLANE_PREFX is set in the environment, but there is no such setting; did you mean RUNLANE_PREFIX?"
    )
    assert "RUNLANE_WEB_PORT" in error
    assert "has 'partitons', which is no setting" in error


def test_an_error_is_one_line_and_a_hint_without_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    missing = str(tmp_path / "missing.toml")
    monkeypatch.setenv("RUNLANE_CONFIG", missing)
    with pytest.raises(SystemExit) as exit_:
        main(["settings"])
    assert exit_.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines == [
        f"error: The settings file {missing} does not exist.",
        "hint: correct --config or RUNLANE_CONFIG",
    ]
    with pytest.raises(SystemExit):
        main(["settings", "--json"])
    assert json.loads(capsys.readouterr().err)["error"]["hint"] == "correct --config or RUNLANE_CONFIG"
    with pytest.raises(UserError):
        main(["settings", "--debug"])


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        (["topics", "list", "--json"], ["--json", "topics", "list"]),
        (["topics", "--prefix", "a", "list"], ["--prefix", "a", "topics", "list"]),
        (["submit", "--prefix=a", "x"], ["--prefix=a", "submit", "x"]),
        (["submit", "--", "--json"], ["submit", "--", "--json"]),
        (["topics", "list", "--prefix"], ["--prefix", "topics", "list"]),
    ],
)
def test_global_flags_may_stand_anywhere(given: list[str], ordered: list[str]) -> None:
    assert global_flags_first(given) == ordered
