"""`runlane dead-letters`: list, show and replay the records that could not be processed."""

from __future__ import annotations

import re
from typing import Annotated

import typer
from rich.text import Text

from streams import dead_letter_box
from streams.cli.client_work import quiet_kafka
from streams.cli.dead_letter_views import (
    bytes_json,
    letter_view,
    letters_view,
    sent_json,
    sent_view,
    summary,
)
from streams.cli.session import Session, session_of
from streams.dead_letter_box import DeadLetter
from streams.user_errors import UserError

app = typer.Typer(
    help="Look at the records that could not be processed, and send them again.", no_args_is_help=True
)

PlaceArgument = Annotated[
    str,
    typer.Argument(metavar="P:OFFSET", help="The dead letter's partition and offset, as `list` shows them."),
]
CodeOption = Annotated[
    list[str] | None, typer.Option(help="Only those with this error code; may be given several times.")
]
TopicOption = Annotated[
    str | None, typer.Option(help="Only those that came from this topic, with or without the prefix.")
]


@app.command("list")
def list_letters(
    context: typer.Context,
    code: CodeOption = None,
    topic: TopicOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The newest so many.")] = 50,
) -> None:
    """List dead letters, the newest first."""
    session = session_of(context)
    found = _find(session, code, topic)
    found.sort(key=lambda letter: (letter.timestamp, letter.partition, letter.offset), reverse=True)
    shown = found[:limit]
    if not found:
        session.output.result([], lambda: Text(f"No dead letters{_such(code, topic)}."))
        return
    prefix = session.settings.name("")
    session.output.result(
        [summary(letter) for letter in shown],
        lambda: letters_view(shown, prefix, session.output.console.width),
    )
    if len(found) > limit:
        session.output.messages.print(f"[dim]and {len(found) - limit:,} older ones: --limit shows more[/dim]")


@app.command()
def show(context: typer.Context, place: PlaceArgument) -> None:
    """Show one dead letter: why it is here, its headers, its value as JSON or in hex, the traceback."""
    session = session_of(context)
    quiet_kafka(session)
    letter = dead_letter_box.fetch(session.settings, *read_place(place))
    details = {
        **summary(letter),
        "headers": [{"name": name, **bytes_json("value", value)} for name, value in letter.own_headers],
        **bytes_json("value", letter.value),
        "traceback": letter.traceback,
    }
    session.output.result(details, lambda: letter_view(letter))


@app.command()
def replay(
    context: typer.Context,
    place: Annotated[
        str | None,
        typer.Argument(metavar="[P:OFFSET]", help="The dead letter's partition and offset, as in `list`."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All of the --code that is given.")] = False,
    code: CodeOption = None,
    topic: TopicOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Send dead letters again to the topics they came from, once what was wrong is mended.

    Key, value and headers are as they were, without the headers `runlane.*`. Sending one twice is safe: a
    command takes effect once, by its id. The dead letter itself stays until its topic's retention deletes it.
    """
    session = session_of(context)
    letters = _chosen(session, place, everything, code, topic)
    replayable, refused = [], []
    for letter in letters:
        reason = letter.why_not_replayable()
        if reason is None:
            replayable.append(letter)
        else:
            refused.append({"place": letter.place, "reason": reason})
            if everything:
                session.output.warn(f"{letter.place} cannot be sent again: {reason}")
    if place is not None and refused:
        raise UserError(f"The dead letter {place} cannot be sent again: {refused[0]['reason']}.")
    if not replayable:
        such = _such(code, topic)
        raise UserError(f"There is no dead letter{such} to send again.", "`runlane dead-letters list`")
    if not yes:
        _ask(replayable)
    places = {letter.place for letter in replayable}
    with_values = (
        replayable if place is not None else dead_letter_box.scan(session.settings, with_values=True)
    )
    again = (letter for letter in with_values if letter.place in places)
    sent = dead_letter_box.replay(session.settings, again)
    session.output.result(
        {"replayed": [sent_json(item) for item in sent], "refused": refused}, lambda: sent_view(sent)
    )


def read_place(text: str) -> tuple[int, int]:
    """Partition and offset of `P:OFFSET`. Raises `UserError` when it is something else."""
    match = re.fullmatch(r"(\d{1,9}):(\d{1,18})", text, re.ASCII)
    if match is None:
        raise UserError(
            f"{text!r} is no place of a dead letter.",
            "give partition and offset as `runlane dead-letters list` shows them, such as 2:17",
            exit_code=2,
        )
    return int(match[1]), int(match[2])


def _chosen(
    session: Session, place: str | None, everything: bool, code: list[str] | None, topic: str | None
) -> list[DeadLetter]:
    if (place is None) is not everything or (everything and not code):
        raise UserError(
            "Say what to send again.", "give one place, such as 2:17, or --all with a --code", exit_code=2
        )
    if place is not None:
        if code or topic:
            raise UserError("--code and --topic choose among --all; a place is one already.", exit_code=2)
        quiet_kafka(session)
        return [dead_letter_box.fetch(session.settings, *read_place(place))]
    return _find(session, code, topic)


def _find(session: Session, codes: list[str] | None, topic: str | None) -> list[DeadLetter]:
    quiet_kafka(session)
    topics = {topic, session.settings.name(topic)} if topic else None
    return [
        letter
        for letter in dead_letter_box.scan(session.settings, with_values=False)
        if (not codes or letter.code in codes) and (not topics or letter.topic in topics)
    ]


def _such(codes: list[str] | None, topic: str | None) -> str:
    """The filters in words."""
    of_code = f" with the code {' or '.join(codes)}" if codes else ""
    return of_code + (f" from {topic}" if topic else "")


def _ask(letters: list[DeadLetter]) -> None:
    topics = sorted({letter.topic or "" for letter in letters})
    what = f"the dead letter {letters[0].place}" if len(letters) == 1 else f"{len(letters):,} dead letters"
    typer.confirm(f"Send {what} again to {', '.join(topics)}?", abort=True, err=True)
