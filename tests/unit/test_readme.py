"""The README and the pages of docs/: what they name exists, and where they point there is something."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from schemas.envelope import read_envelope
from schemas.errors import ErrorCode
from schemas.run_commands import RUN_COMMANDS
from schemas.topics import TOPICS
from streams.broker.jars import KAFKA_VERSION
from streams.cli.main import app
from streams.metrics import Metrics
from streams.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "infra" / "decisions").glob("*.md")),
]
SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_IN_PROSE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def _shell_lines(text: str) -> list[str]:
    """The command lines of the code blocks: all of a `sh` block, and what stands behind `$` in a `console` block."""
    lines: list[str] = []
    for block in SHELL.finditer(text):
        is_console = block[0].startswith("```console")
        typed = [line for line in block[1].splitlines() if not is_console or line.startswith("$ ")]
        lines += [line.removeprefix("$ ") for line in typed]
    return lines


def _runlane_calls(text: str) -> list[list[str]]:
    """The arguments of every call of `runlane`, in code blocks and within sentences."""
    calls = []
    for line in [*_shell_lines(text), *re.findall(r"`(runlane [^`\n]+)`", text)]:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words[:1] == ["runlane"]:
            calls.append(words[1:])
    return calls


def _check_call(words: list[str]) -> None:
    """Fails unless the words are a command of the command line with options that it has."""
    command: Any = typer.main.get_command(app)
    options = {name for parameter in command.params for name in parameter.opts}
    path: list[str] = []
    for word in words:
        if hasattr(command, "commands") and not word.startswith("-"):
            assert word in command.commands, f"runlane {' '.join([*path, word])}: no such command"
            command = command.commands[word]
            path.append(word)
            options |= {name for parameter in command.params for name in parameter.opts}
    for word in words:
        if word.startswith("--") or re.fullmatch("-[a-z]", word):
            assert word.partition("=")[0] in options, f"runlane {' '.join(path)} has no option {word}"


@each_page
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in _runlane_calls(page.read_text(encoding="utf-8")):
        _check_call(words)


def test_a_wrong_command_or_option_is_found() -> None:
    calls = _runlane_calls(
        "```sh\nX=1 runlane submit a --wait # --no\n```\n`runlane topics apply` `runlane nothing`"
    )
    assert calls == [["submit", "a", "--wait"], ["topics", "apply"], ["nothing"]]
    _check_call(calls[0])
    for wrong in (["nothing"], ["topics", "nothing"], ["submit", "a", "--nothing"]):
        with pytest.raises(AssertionError):
            _check_call(wrong)


def test_the_tour_shows_every_kind_of_command() -> None:
    shown = {words[0] for words in _runlane_calls(README)}
    commands: Any = typer.main.get_command(app)
    by_make = {"demo", "bench"}
    assert shown | by_make == set(commands.commands)
    for target in by_make:
        assert f"make {target}" in README


@each_page
def test_settings_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    variables = {
        variable.removeprefix("RUNLANE_").lower() for variable in re.findall(r"RUNLANE_[A-Z_]*[A-Z]", text)
    }
    phrases = re.findall(r"settings? (`[a-z_]+`(?: and `[a-z_]+`)?)", text)
    named = {name for phrase in phrases for name in re.findall(r"[a-z_]{4,}", phrase)}
    assert (variables | named) - {"config"} <= Settings.model_fields.keys()


def test_metrics_exist() -> None:
    families = {family.name for family in Metrics().registry.collect()}
    named = {name.removesuffix("_total") for name in re.findall(r"`(runlane_\w+)`", README)}
    assert named
    assert named <= families


def test_error_codes_and_topics_exist() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        codes = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", text)) - {
            "CONCURRENT_TRANSACTIONS",
            "RUNLANE_BROKERS",
        }
        assert {code for code in codes if not code.startswith("RUNLANE_")} <= set(ErrorCode), page
    topics = set(re.findall(r"-t (\S+)", README))
    assert topics
    assert topics <= TOPICS.keys()


@each_page
def test_links_resolve(page: Path) -> None:
    prose = NOT_IN_PROSE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        assert not path.startswith("http"), f"{target}: links to other sites grow old unseen"
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        assert file.is_relative_to(ROOT)
        if anchor:
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{page.name} links to {target}"


def test_paths_named_in_code_exist() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(
            r"`((?:streams|agents|schemas|infra|tests|examples|docs|\.ci)/[\w./-]+)`", text
        ):
            assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_record_of_the_kcat_example_is_a_command() -> None:
    (line,) = [line for line in _shell_lines(README) if line.startswith("echo 'order-9:")]
    key, _, value = shlex.split(line)[1].partition(":")
    envelope = read_envelope(
        RUN_COMMANDS, key.encode(), value.encode(), (), reply_partitions=1, max_bytes=len(value)
    )
    assert RUN_COMMANDS.parse(envelope.body).type == "run.submit"


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_continuous_integration_runs_the_readmes_test_command() -> None:
    assert "make test" in [line.partition("#")[0].strip() for line in _shell_lines(README)]
    script = (ROOT / ".ci/run").read_text()
    (by_make,) = re.findall(r"^\s*exec (make .*)$", script, re.MULTILINE)
    words = [word for word in shlex.split(by_make) if not word.startswith("--") and "=" not in word]
    assert words == ["make", "test"]
    # Without make the script does itself what the targets do.
    recipes = re.findall(r'^\t@PATH="[^"]+" (\S.*)$', (ROOT / "Makefile").read_text(), re.MULTILINE)
    steps = [recipe.replace("$(ARGS)", "").strip() for recipe in recipes]
    tests, checks = sorted(steps)
    assert (tests.split()[0], checks) == ("pytest", "sh tests/check.sh")
    assert script.rstrip().splitlines()[-2:] == [checks, f"exec {tests}"]


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = project["requires-python"].removeprefix(">=")
    assert f"Python {python} or newer" in README
    assert set(re.findall(r"Apache Kafka (\d+\.\d+\.\d+)", README)) == {KAFKA_VERSION}
    for extra in re.findall(r"pip install -e '\.\[(\w+)\]'", README):
        assert extra in project["optional-dependencies"]


def test_sections_that_the_code_names_exist() -> None:
    pages = {"DESIGN": "design.md", "wire": "wire.md", "coordinator": "coordinator.md"}
    sections = {
        name: set(re.findall(r"^## (\d+)\. ", (ROOT / "docs" / page).read_text(), re.MULTILINE))
        for name, page in pages.items()
    }
    sources = [file for folder in ("schemas", "agents", "streams") for file in (ROOT / folder).rglob("*.py")]
    assert sources
    for source in sources:
        for name, number in re.findall(
            r"\b(DESIGN|wire|coordinator) (\d+)", source.read_text(encoding="utf-8")
        ):
            assert number in sections[name], f"{source.name} names {name} {number}"
