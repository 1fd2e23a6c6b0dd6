"""`runlane inspect`: everything that is stored about a run."""

from __future__ import annotations

import time
from collections.abc import Iterator

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from schemas.inspect_results import InspectedWait, InspectResult
from streams.cli.arguments import RunArgument, TimeoutOption
from streams.cli.client_work import with_client
from streams.cli.output import facts, size, table
from streams.cli.run_views import moment, status_text
from streams.cli.session import session_of
from streams.terminal_text import one_line

app = typer.Typer()

_MOST_SHOWN = 20
"""Of children and waits, for people; --json has all."""


@app.command()
def inspect(context: typer.Context, run_id: RunArgument, timeout: TimeoutOption = None) -> None:
    """Show everything that is stored about a run: how it stands, what it holds and how large that is, what waits.

    Of database sessions, parameters and results it shows only that they are there.
    """
    session = session_of(context)
    found = with_client(session, lambda client: client.inspect(run_id, timeout=timeout), timeout)
    session.output.result(found, lambda: inspect_view(found, time.time() * 1000))


def inspect_view(found: InspectResult, now: float) -> RenderableType:
    """What is known of the run, beneath it what is stored; `now` in ms since the epoch."""
    parts: list[RenderableType] = [facts(dict(_known(found, now)))]
    if found.stored:
        parts += [Text(), _stored(found)]
    if found.children:
        rows = (
            (Text(one_line(child.event_key)), moment(child.stored_at), size(child.bytes))
            for child in found.children[:_MOST_SHOWN]
        )
        parts += [Text(), table(("child result", "stored", "size"), rows)]
        parts += _left_out(len(found.children), "child results")
    if found.waiting:
        waits = ([Text(cell) for cell in _wait(wait)] for wait in found.waiting[:_MOST_SHOWN])
        parts += [Text(), table(("waits", "for", "command id", "to take it"), waits)]
        parts += _left_out(found.waits, "waits")
    return Group(*parts)


def _known(found: InspectResult, now: float) -> Iterator[tuple[str, object]]:
    yield "run", Text(one_line(found.run_id))
    yield "status", status_text(found.status) if found.status else Text("not begun; only waits hang on it")
    kept = f", kept from {found.first_seq} on" if found.first_seq > 1 else ""
    yield "events", f"{found.latest_seq}{kept}"
    if found.submit_seq:
        yield "submitted", f"by event {found.submit_seq}"
    if found.attempt:
        yield "attempt", Text(f"{found.attempt} of instance {one_line(found.instance_id or '-')}")
    if found.instance is not None:
        number = "" if found.instance.attempt is None else f", attempt {found.instance.attempt}"
        of = Text(f"{one_line(found.instance.instance_id)}{number}, {_until(found.instance.expires_at, now)}")
        yield "recorded instance", of
    if found.retry is not None:
        retry = found.retry
        stored = f"{retry.attempts} attempts claimed, {size(retry.params_bytes)} of parameters"
        yield "retry state", f"{stored}, {_until(retry.expires_at, now)}"
    if found.sessions is not None:
        count = found.sessions.session_count
        yield "database sessions", f"present ({count}), encrypted, {_until(found.sessions.expires_at, now)}"
    if found.ended_at is not None:
        yield "ended", moment(found.ended_at)
    if found.evicted:
        yield "evicted", "yes: only this is left; events and end are in the topics"
    elif found.evicts_at is not None:
        yield "evicted", f"at {moment(found.evicts_at)}"


def _stored(found: InspectResult) -> Table:
    rows = [
        (part.what, f"{'over ' if part.more else ''}{part.records:,}", size(part.bytes))
        for part in found.stored
    ]
    total = size(sum(part.bytes for part in found.stored))
    return table(("stored", "records", "size"), [*rows, ("all", "", total)])


def _wait(wait: InspectedWait) -> tuple[str, ...]:
    on = " ".join(one_line(name) for name in wait.on)
    return wait.type, on, one_line(wait.command_id), one_line(wait.owner or "")


def _left_out(count: int, what: str) -> list[RenderableType]:
    if count <= _MOST_SHOWN:
        return []
    return [Text(f"{_MOST_SHOWN} of {count:,} {what} are shown; --json has more", style="dim")]


def _until(expires_at: int, now: float) -> str:
    left_s = (expires_at - now) / 1000
    return f"for {left_s:,.0f} s more" if left_s > 0 else "expired"
