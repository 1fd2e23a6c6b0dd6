"""Numbers that a command must have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


def _require_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("Input should be a number")
    return value


JsonNumber = Annotated[int | float, BeforeValidator(_require_number)]
"""A JSON number, kept as it was sent; booleans are not numbers."""
