"""`runlane topics`: make, check and list the topics."""

from __future__ import annotations

import typer
from rich.markup import escape

from schemas.topics import TOPICS, TopicSpec
from streams import topic_admin
from streams.cli.output import Output, duration, size, table
from streams.cli.session import session_of
from streams.topic_admin import TopicReport

app = typer.Typer(
    help="Make the topics on the broker and compare them with their descriptions.", no_args_is_help=True
)


@app.command()
def apply(context: typer.Context) -> None:
    """Make every missing topic; topics that exist are never changed, their drift is reported."""
    session = session_of(context)
    _show(session.output, topic_admin.apply(session.settings))


@app.command()
def check(context: typer.Context) -> None:
    """Compare the topics on the broker with their descriptions; exits 1 when something differs."""
    session = session_of(context)
    report = topic_admin.check(session.settings, patience_s=10)
    _show(session.output, report)
    if report.drift:
        raise typer.Exit(1)


@app.command("list")
def list_topics(context: typer.Context) -> None:
    """List the topics as they are described: what each is for and how it is kept."""
    session = session_of(context)
    settings = session.settings
    described = [
        {
            "topic": topic_admin.topic_name(spec, settings),
            "partitions": topic_admin.partition_count(spec, settings),
            **spec.model_dump(mode="json", by_alias=True, exclude={"partitions", "settings"}),
            "settings": topic_admin.topic_settings(spec, settings),
        }
        for spec in TOPICS.values()
    ]
    rows = [
        (
            f"[bold]{topic_admin.topic_name(spec, settings)}[/bold]",
            escape(spec.key),
            topic_admin.partition_count(spec, settings),
            _kept(spec),
            escape(f"{', '.join(spec.producers)} -> {', '.join(spec.consumers)}"),
        )
        for spec in TOPICS.values()
    ]
    session.output.result(
        described, lambda: table(("topic", "key", "partitions", "kept", "from -> to"), rows)
    )


def _kept(spec: TopicSpec) -> str:
    if "retention.ms" in spec.settings:
        kept = duration(int(spec.settings["retention.ms"]))
    else:
        kept = "the last per key"
    return f"{kept}, up to {size(spec.max_message_bytes)}"


def _show(output: Output, report: TopicReport) -> None:
    rows = []
    for spec_name in sorted({*report.created, *report.existing, *(drift.topic for drift in report.drift)}):
        differences = [drift for drift in report.drift if drift.topic == spec_name]
        if spec_name in report.created:
            state = "[green]created[/green]"
        elif any(drift.what == "missing" for drift in differences):
            state = "[red]missing[/red]"
        else:
            state = "[yellow]differs[/yellow]" if differences else "as described"
        details = "; ".join(
            f"{drift.setting or 'partitions'} is {drift.actual}, not {drift.expected}"
            for drift in differences
            if drift.what != "missing"
        )
        rows.append((spec_name, state, escape(details)))
    output.result(
        report, lambda: table(("topic", "state", "difference"), rows, title=f"Topics on {report.brokers}")
    )
    if any(drift.what == "missing" for drift in report.drift):
        output.warn("topics are missing: `runlane topics apply` makes them")
    if any(drift.what != "missing" for drift in report.drift):
        output.warn("topics differ from their descriptions; runlane does not change topics that exist")
