"""`runlane traces`: what took a run's time, as a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import orjson
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from schemas.trace_results import Trace, TraceListResult
from streams.cli.arguments import RunArgument, TimeoutOption
from streams.cli.client_work import with_client
from streams.cli.output import table
from streams.cli.run_views import clock
from streams.cli.session import session_of
from streams.terminal_text import one_line, printable

app = typer.Typer()

_BAR_WIDTH = 40
_SOURCE_STYLES = {"coordinator": "magenta", "dynamic_worker": "cyan"}


@app.command()
def traces(context: typer.Context, run_id: RunArgument, timeout: TimeoutOption = None) -> None:
    """Show what took a run's time: its newest 200 traces as a timeline, the earliest first."""
    session = session_of(context)
    listed = with_client(session, lambda client: client.list_traces(run_id, timeout=timeout), timeout)
    session.output.result(listed, lambda: traces_view(listed))


def traces_view(listed: TraceListResult) -> RenderableType:
    """A table of the traces with a bar for each, on one scale of time."""
    found = listed.traces
    if not found:
        return Text("The run has no traces.", style="dim")
    summary = Text(f"traces: {len(found)}", style="dim")
    if listed.more:
        summary.append("; later ones did not fit into the answer")
    columns = ("began", "ms", "source", "phase", f"{_span_ms(found):,.0f} ms", "more")
    return Group(table(columns, (_row(trace, found) for trace in found)), summary)


def _span_ms(found: Sequence[Trace]) -> float:
    """From the beginning of the first to the end of the last."""
    return max(_end(trace) for trace in found) - found[0].ts


def _end(trace: Trace) -> float:
    return trace.ts + max(0.0, trace.ms)


def _row(trace: Trace, found: Sequence[Trace]) -> tuple[Text, ...]:
    style = _SOURCE_STYLES[trace.source]
    more = printable(orjson.dumps(trace.model_extra).decode()) if trace.model_extra else ""
    return (
        Text(clock(trace.ts), style="dim"),
        Text(f"{trace.ms:,.1f}", justify="right"),
        Text(trace.source, style=style),
        Text(one_line(trace.phase)),
        Text(_bar(trace, found), style=style),
        Text(more, style="dim"),
    )


def _bar(trace: Trace, found: Sequence[Trace]) -> str:
    """Where the trace lies between the first one's beginning and the last one's end; one character at least."""
    span = _span_ms(found)
    if not (isfinite(span) and span > 0):
        return "█"
    begin = min(_BAR_WIDTH - 1, int((trace.ts - found[0].ts) / span * _BAR_WIDTH))
    end = min(_BAR_WIDTH, round((_end(trace) - found[0].ts) / span * _BAR_WIDTH))
    return " " * begin + "█" * max(1, end - begin)
