"""The demo while it runs: a live picture in a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import time
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from schemas.topics import RUN_COMMANDS
from streams.demo.observer import Sight
from streams.terminal_text import printable

_PICTURE_EVERY_S = 0.2
_LINE_EVERY_S = 2.0
_BAR_WIDTH = 30


class Screen:
    """Shows a `Sight` on a console, for as long as the context lasts."""

    def __init__(self, console: Console, sight: Sight) -> None:
        self._console = console
        self._sight = sight
        self._started = time.monotonic()
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._console.print(self._line(), soft_wrap=True)

    async def show(self) -> None:
        """Show what is seen, until cancelled."""
        while True:
            if self._live is not None:
                self._live.update(self.picture(), refresh=True)
                await asyncio.sleep(_PICTURE_EVERY_S)
            else:
                self._console.print(self._line(), soft_wrap=True)
                await asyncio.sleep(_LINE_EVERY_S)

    def say(self, message: str) -> None:
        """Print a line that stays, above the picture."""
        self._console.print(Text(message, style="bold yellow"), soft_wrap=True)

    def picture(self) -> RenderableType:
        """All that is seen, about twenty lines."""
        sight = self._sight
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="bold")
        facts.add_column()
        facts.add_row("runs", self._bar())
        facts.add_row("", self._runs())
        facts.add_row("commands", f"{sight.commands.count:>7,}  {sight.commands.per_second():>6,.0f}/s")
        facts.add_row("events", f"{sight.events.count:>7,}  {sight.events.per_second():>6,.0f}/s")
        facts.add_row("lanes", self._lanes())
        facts.add_row(
            "worker", Text(sight.news or "not disturbed yet", style="yellow" if sight.news else "dim")
        )
        lines = [
            Text(printable(line), no_wrap=True, overflow="ellipsis", style="dim") for line in sight.lines
        ]
        return Group(facts, Text("newest lines", style="bold"), *lines)

    def _bar(self) -> Table:
        sight = self._sight
        row = Table.grid(padding=(0, 1))
        share = Text(f"{sight.done}/{sight.runs}  {time.monotonic() - self._started:.0f} s")
        row.add_row(ProgressBar(sight.runs, sight.done, width=_BAR_WIDTH), share)
        return row

    def _runs(self) -> Text:
        sight = self._sight
        return Text.assemble(
            f"{sight.submitted} submitted, ",
            (f"{len(sight.running)} running", "cyan"),
            ", ",
            (f"{sight.ended['completed']} completed", "green"),
            ", ",
            (f"{sight.ended['failed']} failed", "red"),
        )

    def _lanes(self) -> RenderableType:
        if not self._sight.lanes:
            return Text("no answer from the worker", style="red")
        row = Text()
        for lane in self._sight.lanes:
            done = lane["watermarks"].get(RUN_COMMANDS.name, -1) + 1
            serving = lane["state"] == "serving"
            row.append(f"{lane['partition']}: ")
            row.append(f"{done:,}" if serving else lane["state"], style="green" if serving else "yellow")
            row.append("   ")
        return row.append("commands done", style="dim")

    def _line(self) -> Text:
        sight = self._sight
        text = Text(f"{time.monotonic() - self._started:5.1f} s  ")
        text.append_text(self._runs())
        text.append(f"; {sight.commands.count:,} commands, {sight.events.count:,} events")
        return text
