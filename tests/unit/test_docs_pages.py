"""The reference pages: as fresh as the code, and complete."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.families import FAMILIES
from schemas.errors import ErrorCode
from schemas.topics import TOPICS
from streams.cli.main import main
from streams.docs_pages import pages
from streams.settings import Settings
from streams.verify.families import RULES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_pages_in_the_repository_are_fresh() -> None:
    kept = {file.name: file.read_text(encoding="utf-8") for file in FOLDER.iterdir()}
    assert kept == pages(), "write them anew with `runlane docs export docs/reference`"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("commands.md", [name for family in FAMILIES for name in family.commands.by_type]),
        ("errors.md", list(ErrorCode)),
        ("settings.md", [f"RUNLANE_{name.upper()}" for name in Settings.model_fields]),
        ("topics.md", list(TOPICS)),
        ("verification.md", [rule.name for rule in RULES]),
    ],
)
def test_each_page_has_an_entry_for_everything(page: str, names: list[str]) -> None:
    entries = [
        line.removeprefix("| `").partition("`")[0] if line.startswith("|") else line.lstrip("# ")
        for line in pages()[page].splitlines()
    ]
    assert [entry for entry in entries if entry in names] == names


def test_every_field_has_a_meaning() -> None:
    rows = [line for text in pages().values() for line in text.splitlines() if line.startswith("| `")]
    assert rows
    bare = [row for row in rows if row.endswith("|  |") and not row.startswith("| `type` |")]
    assert not bare


def test_the_command_writes_the_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "made" / "here"
    with pytest.raises(SystemExit) as done:
        main(["docs", "export", str(target)])
    assert done.value.code == 0
    assert "5 pages" in capsys.readouterr().out
    assert {file.name: file.read_text(encoding="utf-8") for file in target.iterdir()} == pages()
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as done:
        main(["docs", "export", str(tmp_path / "file")])
    assert done.value.code == 1
    assert "cannot be written" in capsys.readouterr().err
