"""`runlane calls`: what a run executes once, and how it stands."""

from __future__ import annotations

import time

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from schemas.call_results import CallEntry, CallsResult
from streams.cli.arguments import RunArgument, TimeoutOption
from streams.cli.client_work import with_client
from streams.cli.output import table
from streams.cli.session import session_of
from streams.terminal_text import one_line

app = typer.Typer()

_STATE_STYLES = {
    "claimed": "cyan",
    "expired": "yellow",
    "released": "yellow",
    "published": "green",
    "failed": "red",
}


@app.command()
def calls(context: typer.Context, run_id: RunArgument, timeout: TimeoutOption = None) -> None:
    """Show a run's calls (`context.call`): who executes them, under which fencing number, and how they ended."""
    session = session_of(context)
    listed = with_client(session, lambda client: client.list_calls(run_id, timeout=timeout), timeout)
    session.output.result(listed, lambda: calls_view(listed, time.time() * 1000))


def calls_view(listed: CallsResult, now: float) -> RenderableType:
    """A table of the calls, and how many there are and wait; `now` in ms since the epoch."""
    summary = Text(f"calls: {listed.size:,}, commands that wait for them: {listed.waiters:,}", style="dim")
    if listed.more:
        summary.append(f"; the first {len(listed.entries)} are shown")
    if not listed.entries:
        return summary
    columns = ("tool", "input hash", "state", "fencing number", "owner", "lease")
    return Group(table(columns, (_row(entry, now) for entry in listed.entries)), summary)


def _row(entry: CallEntry, now: float) -> tuple[Text, ...]:
    return (
        Text(one_line(entry.tool_id)),
        Text(one_line(entry.input_hash)),
        Text(entry.state, style=_STATE_STYLES[entry.state]),
        Text(str(entry.fencing_number)),
        Text(one_line(entry.owner or "")),
        Text(_lease(entry.lease_expires_at, now)),
    )


def _lease(expires_at: int | None, now: float) -> str:
    if expires_at is None:
        return ""
    seconds = (expires_at - now) / 1000
    return f"{seconds:.0f} s left" if seconds > 0 else f"ran out {-seconds:.0f} s ago"
