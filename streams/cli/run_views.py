"""How runs look to people: events, ends and states as lines and tables."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from schemas.events import LogEvent, ProgressEvent, StatusEvent, TerminalEvent
from schemas.run_results import StatusResult
from schemas.terminals import TerminalState
from streams.cli.output import duration, facts, json_text
from streams.run_events import AnyRunEvent, UnknownEvent
from streams.terminal_text import one_line, printable

_STATUS_STYLES = {
    "running": "cyan",
    "sleeping": "blue",
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
}
_INDENT = " " * 31
_TABLE_WIDTH = 110
_RUN_WIDTH = 40
_TYPE_STYLES = {"status": "magenta", "log": "", "progress": "cyan", "terminal": "bold"}


def event_fields(event: AnyRunEvent) -> dict[str, Any]:
    """The JSON of an event as it is on the topic."""
    if isinstance(event, UnknownEvent):
        return event.fields
    return event.model_dump(mode="json", by_alias=True, exclude_unset=True)


def event_line(event: AnyRunEvent) -> Text:
    """`seq  time  type  what happened`, for a list that grows downwards."""
    line = Text(f"{event.seq:>5}  ", style="bold")
    line.append(f"{clock(event.ts)}  ", style="dim not bold")
    line.append(f"{one_line(event.type):<9} ", style=f"not bold {_TYPE_STYLES.get(event.type, 'dim')}")
    line.append_text(_what_happened(event))
    return line


def _what_happened(event: AnyRunEvent) -> Text:
    if isinstance(event, LogEvent):
        return Text(_indented(event.line), style="not bold")
    if isinstance(event, StatusEvent | ProgressEvent):
        what = Text(_indented(event.status), style="not bold")
        if isinstance(event, ProgressEvent) and event.active_node_id:
            what.append(f"  [{one_line(event.active_node_id)}]", style="dim")
        for log in event.logs or ():
            what.append(f"\n{_INDENT}{_indented(log)}", style="dim")
        return what
    if isinstance(event, TerminalEvent):
        return _end(event, with_stack=True)
    rest = {name: value for name, value in event.fields.items() if name not in _COMMON}
    return Text(printable(orjson.dumps(rest).decode()), style="not bold dim")


def _indented(text: str) -> str:
    """Text of several lines such that none of them looks like a row of its own."""
    return printable(text).replace("\n", f"\n{_INDENT}")


_COMMON = {"seq", "runId", "type", "ts", "commandId"}


def _end(end: TerminalEvent | TerminalState, *, with_stack: bool = False) -> Text:
    what = status_text(end.status)
    what.stylize("not bold")
    if end.total_rows is not None:
        what.append(f", {_rows(end.total_rows)}")
    if isinstance(end.duration_ms, int | float) and not isinstance(end.duration_ms, bool):
        what.append(f", {duration(round(end.duration_ms))}")
    if end.error is not None:
        reason, *stack = printable(end.error).splitlines() or [""]
        what.append(f": {reason}")
        if with_stack:
            what.append("".join(f"\n{_INDENT}{line}" for line in stack), style="dim")
    return what


def status_text(status: str) -> Text:
    """A status in its colour."""
    return Text(one_line(status), style=_STATUS_STYLES.get(status, ""))


def end_view(end: TerminalState) -> RenderableType:
    """How one run ended, with its result."""
    known: dict[str, object] = {
        "run": Text(one_line(end.run_id)),
        "status": status_text(end.status),
        "ended": moment(end.completed_at),
    }
    if end.error is not None:
        known["error"] = Text(printable(end.error))
    if end.total_rows is not None:
        known["total rows"] = Text(_rows(end.total_rows, unit=""))
    if end.duration_ms is not None:
        known["duration"] = Text(_milliseconds(end.duration_ms))
    if end.play_name is not None:
        known["play"] = Text(one_line(end.play_name))
    known["last event"] = end.seq
    return _with_result(facts(known), end.result)


def status_view(state: StatusResult) -> RenderableType:
    """How one run stands."""
    known: dict[str, object] = {
        "run": Text(one_line(state.run_id)),
        "status": status_text(state.status),
        "events": state.latest_seq,
    }
    if isinstance(state.wait, dict) and isinstance(names := state.wait.get("eventKeys"), list):
        known["waits for"] = Text(", ".join(one_line(str(name)) for name in names))
    if state.error is not None:
        known["error"] = Text(printable(state.error))
    if state.total_rows is not None:
        known["total rows"] = Text(_rows(state.total_rows, unit=""))
    if state.duration_ms is not None:
        known["duration"] = Text(_milliseconds(state.duration_ms))
    return _with_result(facts(known), state.result)


def end_line(end: TerminalState) -> Text:
    """One run's end in a line, for a list that grows downwards."""
    line = Text(f"{moment(end.completed_at)}  ", style="dim")
    line.append(f"{one_line(end.run_id)}  ", style="not dim bold")
    what = _end(end)
    what.stylize("not dim")
    line.append_text(what)
    return line


def ends_view(ends: Sequence[TerminalState], width: int) -> RenderableType:
    """The ends of runs beneath each other, in a table when there is room."""
    if width < _TABLE_WIDTH:
        return Group(*(end_line(end) for end in ends))
    run_width = min(_RUN_WIDTH, max(len(end.run_id) for end in ends))
    columns: list[tuple[str, int, JustifyMethod]] = [
        ("ended", 19, "left"),
        ("run", max(3, run_width), "left"),
        ("status", 9, "left"),
        ("rows", 7, "right"),
        ("events", 6, "right"),
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, column_width, justify in columns:
        table.add_column(name, width=column_width, justify=justify, overflow="fold")
    # Rich would squeeze the other columns to make room for a long text, so it is cut before.
    rest = width - sum(column_width + 2 for _, column_width, _ in columns)
    table.add_column("error, or result", no_wrap=True)
    for end in ends:
        last = _short(end.result) if end.error is None else Text(printable(end.error.partition("\n")[0]))
        last.truncate(rest, overflow="ellipsis")
        table.add_row(
            moment(end.completed_at),
            Text(one_line(end.run_id)),
            status_text(end.status),
            Text("" if end.total_rows is None else _rows(end.total_rows, unit="")),
            str(end.seq),
            last,
        )
    return table


def _with_result(known: Table, result: Any) -> RenderableType:
    if result is None:
        return known
    return Group(known, Text("result", style="bold"), json_text(result))


def _short(value: Any) -> Text:
    return Text("" if value is None else printable(orjson.dumps(value).decode()), style="dim")


def _rows(total: Any, unit: str = " rows") -> str:
    if isinstance(total, int) and not isinstance(total, bool):
        return f"{total:,}{unit}"
    return printable(orjson.dumps(total).decode())


def _milliseconds(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,.0f} ms"
    return printable(orjson.dumps(value).decode())


def clock(milliseconds: float) -> str:
    """The local time of day, to the millisecond; `?` for what no calendar has."""
    return _format(milliseconds, "%H:%M:%S.%f")[:12]


def moment(milliseconds: float) -> str:
    """The local date and time, to the second; `?` for what no calendar has."""
    return _format(milliseconds, "%Y-%m-%d %H:%M:%S")


def _format(milliseconds: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):
        return "?"
