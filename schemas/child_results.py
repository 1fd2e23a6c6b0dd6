"""What the commands about child results answer (spec coordinator 3, wire 7)."""

from __future__ import annotations

from typing import Any

from schemas.results import Result


class ChildState(Result):
    """A named result of a run."""

    event_key: str
    """Its name, without white space around it."""
    data: Any = None
    """The result, any JSON."""
    stored_at: int | float
    """When it came about, in ms since the epoch."""


class ChildSetResult(Result):
    """`child.terminal.set`: the result as it is stored; in an answer that comes again, as it is stored by then."""

    state: ChildState | None
    """Null only in an answer that comes again after the run was evicted."""


class ChildResult(Result):
    """`child.terminal.get` and `child.terminal.await`: the result, null when there is none (in time)."""

    state: ChildState | None
    """Null when there is none."""


CHILD_RESULTS: dict[str, type[Result]] = {
    "child.terminal.set": ChildSetResult,
    "child.terminal.get": ChildResult,
    "child.terminal.await": ChildResult,
}
