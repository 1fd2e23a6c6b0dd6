"""`runlane log-tail`: a log topic's lines as log events of runs."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer
from rich.text import Text

from streams.cli.arguments import named
from streams.cli.client_work import quiet_kafka
from streams.cli.session import session_of
from streams.log_tail.log_tail import LogTail, TailCounts

app = typer.Typer()


@app.command("log-tail")
def log_tail(
    context: typer.Context,
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="The log topic's name on the broker.", callback=named)
    ],
    group: Annotated[
        str,
        typer.Option(help="Consumer group, without the prefix; its members share the topic.", callback=named),
    ] = "log-tail",
) -> None:
    """Turn a log topic's lines into log events of runs, until told to stop (Ctrl-C or SIGTERM).

    A line is a run's when it says `[deepline-run:RUN] text`, or names a run like `play/x/run/y`. Records are plain
    text, or JSON with `logs` and `exceptions`. Of one record at most 100 lines of a run are taken. A line that is read
    twice is logged once. A group that is new begins at the topic's beginning.
    """
    session = session_of(context)
    quiet_kafka(session)
    tail = LogTail(session.settings, topic, group)

    async def work() -> TailCounts:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        if not session.as_json:
            session.output.step(f"tailing {topic}; Ctrl-C stops")
        return await tail.run(stop)

    counts = asyncio.run(work())
    session.output.result(counts, lambda: _view(counts))


def _view(counts: TailCounts) -> Text:
    refused = ", ".join(f"{count:,} {code}" for code, count in counts.refused.most_common())
    text = Text(f"{counts.records:,} records read, {counts.logged:,} lines logged")
    return text.append(f", refused: {refused}" if refused else "")
