"""A torture while it runs: a live picture in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from streams.torture.ordeal import Progress
from streams.torture.pauses import FaultWindow

_PICTURE_EVERY_S = 0.2
_LINE_EVERY_S = 5.0
_BAR_WIDTH = 30
_NEWEST = 8


class Screen:
    """Shows a `Progress` on a console from when it gets one until the block ends."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress: Progress | None = None
        self._began = time.monotonic()
        self._told = 0
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )
        self._task: asyncio.Task[None] | None = None

    def watch(self, progress: Progress) -> None:
        """Begin to show it; called in the event loop."""
        self._progress = progress
        self._began = time.monotonic()
        if self._live is not None:
            self._live.start()
        self._task = asyncio.create_task(self._show(progress))

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._live is not None:
            self._live.stop()
        if self._progress is not None:
            self._tell_closed(self._progress)

    async def _show(self, progress: Progress) -> None:
        while True:
            if self._live is not None:
                self._live.update(self.picture(progress), refresh=True)
                await asyncio.sleep(_PICTURE_EVERY_S)
            else:
                self._tell_closed(progress)
                self._console.print(self._line(progress), soft_wrap=True)
                await asyncio.sleep(_LINE_EVERY_S)

    def picture(self, progress: Progress) -> RenderableType:
        """All that there is to see, about fifteen lines."""
        pauses = progress.pauses
        struck = len(pauses.windows)
        bar = Table.grid(padding=(0, 1))
        share = Text(f"{struck}/{progress.planned}  {time.monotonic() - self._began:.0f} s")
        bar.add_row(ProgressBar(progress.planned, struck, width=_BAR_WIDTH), share)
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="bold")
        facts.add_column()
        facts.add_row("faults", bar)
        facts.add_row("load", self._load(progress))
        facts.add_row("longest wait", f"{pauses.longest_wait_s:.1f} s")
        facts.add_row("problems", _problems(progress))
        newest = [_window_line(window) for window in pauses.windows[-_NEWEST:]]
        return Group(facts, Text("newest faults", style="bold"), *newest)

    def _line(self, progress: Progress) -> Text:
        text = Text(
            f"{time.monotonic() - self._began:6.1f} s  {len(progress.pauses.windows)}/{progress.planned} faults; "
        )
        text.append_text(self._load(progress)).append("; problems: ").append_text(_problems(progress))
        going_on = ", ".join(window.fault.label for window in progress.pauses.in_progress)
        return text.append(f"; now: {going_on}" if going_on else "")

    def _load(self, progress: Progress) -> Text:
        observer = progress.observer
        return Text(
            f"{len(progress.sender.sent):,} commands sent, {observer.events:,} events, {observer.awaited:,} effects due"
        )

    def _tell_closed(self, progress: Progress) -> None:
        """One line for each fault that is over, in the order in which they struck."""
        windows = progress.pauses.windows
        while self._told < len(windows) and windows[self._told].closed_at is not None:
            self._console.print(_window_line(windows[self._told]), soft_wrap=True)
            self._told += 1


def _problems(progress: Progress) -> Text:
    count = len(progress.faults.problems)
    return Text(str(count), style="bold red" if count else "green")


def _window_line(window: FaultWindow) -> Text:
    fault = window.fault
    text = Text(f"{fault.number:>4}  {fault.label:<42}")
    if window.closed_at is None:
        state = "in progress" if window.undone_at is None else "over, not everything flows yet"
        return text.append(state, style="yellow")
    together = ", with others in progress" if window.overlaps else ""
    return text.append(f"longest wait {window.longest_wait_s:.1f} s{together}", style="dim")
