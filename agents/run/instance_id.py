"""The id of the executor instance that runs a run (spec coordinator 9)."""

from __future__ import annotations

import re

_OTHERS = re.compile("[^a-z0-9_-]+")
_MAX_LENGTH = 100
_FNV_OFFSET, _FNV_PRIME = 2166136261, 16777619
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def instance_id(run_id: str) -> str:
    """The id of a run's first instance: 1..100 characters of `a-z0-9_-`, not unique across runs."""
    normalized = _OTHERS.sub("-", run_id.lower())
    return normalized if 1 <= len(normalized) <= _MAX_LENGTH else f"run-{_base36(_fnv1a(run_id))}"


def _fnv1a(text: str) -> int:
    """32-bit FNV-1a over UTF-16 code units, not bytes: as JavaScript's `charCodeAt` sees the text."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = _FNV_OFFSET
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value ^ (low | high << 8)) * _FNV_PRIME & 0xFFFFFFFF
    return value


def _base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"
