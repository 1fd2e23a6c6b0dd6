"""What `run.signal` answers (spec wire 7)."""

from __future__ import annotations

from schemas.results import Result


class SignalResult(Result):
    """`run.signal`: the signal's type as it is used, and what came of it."""

    signal_type: str
    """1..100 of `A-Za-z0-9_-`."""
    stored: bool
    """Whether it became a child's result, under its key."""


SIGNAL_RESULTS: dict[str, type[Result]] = {"run.signal": SignalResult}
