"""The list of kinds of failure names every test file of this folder, and no file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def test_the_list_is_complete_and_right() -> None:
    named = set(re.findall(r"`([^` ]+\.py)`", (FOLDER / "README.md").read_text(encoding="utf-8")))
    assert all((FOLDER / name).is_file() for name in named)
    own = {path.name for path in FOLDER.glob("test_*.py")} - {Path(__file__).name}
    assert own <= named
