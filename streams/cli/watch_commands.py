"""`runlane events` and `terminals`: read what the coordinator has written, and follow it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich.text import Text

from schemas.terminals import TerminalState
from schemas.topics import RUN_EVENTS, RUN_TERMINALS
from streams.cli.arguments import RunArgument
from streams.cli.client_work import with_client
from streams.cli.run_views import end_line, ends_view, event_fields, event_line
from streams.cli.session import session_of
from streams.client import RunlaneClient
from streams.user_errors import UserError

app = typer.Typer()

FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")
]


class Ending(StrEnum):
    """How a run can end."""

    completed = "completed"
    failed = "failed"
    cancelled = "cancelled"


@app.command()
def events(
    context: typer.Context,
    run_id: RunArgument,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with what is written, until the run ends."),
    ] = False,
    from_seq: Annotated[int, typer.Option(min=1, help="The first event to show, by its `seq`.")] = 1,
) -> None:
    """Print a run's events from the topic `run-events`, each once, in their order.

    With --json, one JSON object per line, as on the topic.
    """
    session = session_of(context)
    topic = session.settings.name(RUN_EVENTS.name)

    async def work(client: RunlaneClient) -> int:
        count = 0
        async with client.events(run_id, from_seq=from_seq, follow=follow) as found:
            async for event in found:
                count += 1
                session.output.item(event_fields(event), lambda event=event: event_line(event))  # type: ignore[misc]
        return count

    if not with_client(session, work) and from_seq == 1:
        raise UserError(
            f"There are no events of run {run_id!r} in {topic}.",
            "check the run's id and the prefix; --follow waits for the first one",
        )


@app.command()
def terminals(
    context: typer.Context,
    follow: FollowOption = False,
    new: Annotated[bool, typer.Option("--new", help="With --follow: only ends from now on.")] = False,
    status: Annotated[Ending | None, typer.Option(help="Only these ends.")] = None,
) -> None:
    """Show how runs ended, from the topic `run-terminals`, which keeps the end of every run.

    With --json, one JSON object per line, as on the topic.
    """
    session = session_of(context)
    output = session.output
    if new and not follow:
        raise UserError("--new shows only ends from now on, so it needs --follow.", exit_code=2)

    async def work(client: RunlaneClient) -> list[TerminalState]:
        ends = []
        async with client.follow_terminals(start="end" if new else "beginning", follow=follow) as found:
            async for end in found:
                if status is not None and end.status != status:
                    continue
                if follow or output.as_json:
                    output.item(end, lambda end=end: end_line(end))  # type: ignore[misc]
                else:
                    ends.append(end)
        return ends

    ends = with_client(session, work)
    if follow or output.as_json:
        return
    ends.sort(key=lambda end: end.completed_at)
    topic = session.settings.name(RUN_TERMINALS.name)
    none = Text(f"No run has ended{f' as {status}' if status else ''} in {topic}.")
    output.console.print(ends_view(ends, output.console.width) if ends else none)
