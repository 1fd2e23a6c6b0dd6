"""How commands show results: tables and colours for people, JSON for machines.

Results go to standard output; progress, warnings and errors to standard error, so that a pipe gets results
only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel
from rich.console import Console, RenderableType
from rich.highlighter import JSONHighlighter
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from streams.terminal_text import printable
from streams.user_errors import UserError

_PIPE_WIDTH = 160


class Output:
    """Prints results in the form that was asked for."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        # A pipe has no width; 80 columns would fold tables for nothing.
        self.console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        self.messages = Console(stderr=True, highlight=False)

    def result(self, data: Any, for_people: Callable[[], RenderableType]) -> None:
        """Print one result: `data` as JSON, or what `for_people` makes of it."""
        if self.as_json:
            print_json(data, pretty=sys.stdout.isatty())
        else:
            self.console.print(for_people())

    def item(self, data: Any, for_people: Callable[[], RenderableType]) -> None:
        """Print one of many results as it comes: one JSON object per line, or a line for people."""
        if self.as_json:
            print_json(data)
            sys.stdout.flush()
        else:
            # A line that is longer than the terminal is the terminal's to fold: a pipe gets it whole.
            self.console.print(for_people(), soft_wrap=True)

    def step(self, message: str) -> None:
        """Say what is being done."""
        self.messages.print(f"[dim]{escape(printable(message))} ...[/dim]")

    def warn(self, message: str) -> None:
        """Say what is not as it should be, though the command goes on."""
        self.messages.print(f"[yellow]warning:[/yellow] {escape(printable(message))}", soft_wrap=True)

    def error(self, error: UserError) -> None:
        """Say why the command failed and what would be right."""
        if self.as_json:
            print(orjson.dumps({"error": error.as_json()}).decode(), file=sys.stderr)
            return
        self.messages.print(f"[bold red]error:[/bold red] {escape(printable(error.message))}", soft_wrap=True)
        if error.hint:
            self.messages.print(f"[cyan]hint:[/cyan] {escape(printable(error.hint))}", soft_wrap=True)


def print_json(data: Any, *, pretty: bool = False) -> None:
    """Print `data` (dataclasses, pydantic models and paths too) as JSON on standard output."""
    options = orjson.OPT_APPEND_NEWLINE | (orjson.OPT_INDENT_2 if pretty else 0)
    sys.stdout.write(orjson.dumps(data, default=_jsonable, option=options).decode())


def json_text(value: Any) -> Text:
    """A decoded JSON value over several lines, in colours."""
    text = Text(printable(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()))
    JSONHighlighter().highlight(text)
    return text


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    """A table; a cell may hold rich markup, so give what comes from outside as `Text`, or escape it."""
    made = Table(title=title, title_justify="left", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        cells = ("" if cell is None else cell if isinstance(cell, Text) else str(cell) for cell in row)
        made.add_row(*cells)
    return made


def facts(values: Mapping[str, object]) -> Table:
    """Names and values beneath each other; a value may hold rich markup unless it is a `Text`."""
    made = Table(show_header=False, box=None, pad_edge=False)
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in values.items():
        shown = value if isinstance(value, Text) else "-" if value is None else str(value)
        made.add_row(name, shown)
    return made


def duration(milliseconds: float) -> str:
    """A duration in its largest whole unit: `7 d`, `24 h`, `15 min`, `3 s`, `250 ms`."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{milliseconds // size:.0f} {unit}"
    return f"{milliseconds:.0f} ms"


def time_left(milliseconds: float) -> str:
    """How much time is left, in its largest unit and the next: `365 d 23 h`, `59 min 55 s`, `3.2 s`."""
    if milliseconds < 60_000:
        return f"{milliseconds // 100 / 10:.1f} s"
    seconds = int(milliseconds // 1000)
    parts = (
        ("d", seconds // 86_400),
        ("h", seconds // 3600 % 24),
        ("min", seconds // 60 % 60),
        ("s", seconds % 60),
    )
    largest = next(at for at, (_, count) in enumerate(parts) if count)
    return " ".join(f"{count} {unit}" for unit, count in parts[largest : largest + 2] if count)


def size(count: float) -> str:
    """A number of bytes in binary units: `2 MiB`, `1.5 KiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _jsonable(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
