"""Errors that a person can act on."""

from __future__ import annotations

from typing import Any


class UserError(Exception):
    """A problem outside the code: `message` says what is wrong, `hint` what would be right.

    The command line prints both, without a traceback, and exits with `exit_code` (1: it failed, 2: it was
    asked for something impossible).
    """

    def __init__(self, message: str, hint: str | None = None, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def as_json(self) -> dict[str, Any]:
        """The error for machines."""
        return {"message": self.message, "hint": self.hint}

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message
