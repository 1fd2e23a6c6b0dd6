"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], what: str, patience_s: float = 30.0) -> None:
    """Return as soon as `condition()` is true; fail, saying `what` did not happen, after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {patience_s:.0f} s")
        time.sleep(0.05)
