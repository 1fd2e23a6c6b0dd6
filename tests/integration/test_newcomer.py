"""The newcomer's path: a fresh clone, one command, success."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
_PATIENCE_S = 1200


def test_make_demo_in_a_fresh_clone_ends_with_success(broker: str, tmp_path: Path) -> None:
    clone = tmp_path / "runlane"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(clone)], check=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("RUNLANE_") and name not in ("VIRTUAL_ENV", "PYTHONPATH")
    }
    environment["RUNLANE_BROKERS"] = broker
    try:
        done = subprocess.run(
            ["make", "--no-print-directory", "demo", "ARGS=--runs 12 --delete-topics"],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    finally:
        shutil.rmtree(clone / ".venv", ignore_errors=True)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    account = done.stdout.splitlines()
    for wanted in ("lost", "twice"):
        (line,) = [line for line in account if line.split()[:1] == [wanted]]
        assert line.split()[1] == "0", done.stdout
