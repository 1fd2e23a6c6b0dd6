"""`runlane verify`: check by the topics alone that the deployment has kept what it promises."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from streams import topic_admin
from streams.broker.local_broker import resolve_brokers
from streams.cli.client_work import INTERRUPTED, quiet_kafka, with_client
from streams.cli.session import Session, session_of
from streams.cli.verify_views import report_view
from streams.client import RunlaneClient
from streams.user_errors import UserError
from streams.verify.cut import RepeatLimits
from streams.verify.descriptions import Descriptions
from streams.verify.kafka_source import KafkaSource
from streams.verify.report import Report
from streams.verify.run.asking import Questions, Samples
from streams.verify.verifier import Verifier

app = typer.Typer()

_VIOLATED = 1
_FAILED = 2


@app.command()
def verify(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Check only this run; the records of others are passed over."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Violations to show of each rule; all are counted.")] = 20,
    ask: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Also ask the workers about so many runs, chosen by chance. Needs a running deployment, and "
            "sends questions, which change nothing.",
        ),
    ] = 0,
) -> None:
    """Read all topics, and check that every promise was kept: nothing lost, nothing twice, nothing out of order.

    Works on a running deployment as well as on a stopped one, and only reads (but for `--ask`). What was committed
    after it began is left out. The rules are in docs/reference/verification.md.

    Exits 0 when no rule is broken, 1 when one is, 2 when the topics could not be read. Takes 50 to 100 bytes of
    temporary disk space for each record, in the folder that TMPDIR names.
    """
    session = session_of(context)
    session.failure_code = _FAILED
    quiet_kafka(session)
    if run == "":
        raise UserError("--run is empty.", "name a run", exit_code=_FAILED)
    _collect_no_garbage()
    try:
        report, described = _verify(session, run, limit, ask)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    session.output.result(described, lambda: report_view(report, described["violations"]))
    if report.violations:
        raise typer.Exit(_VIOLATED)


def _verify(session: Session, run: str | None, limit: int, ask: int) -> tuple[Report, dict[str, Any]]:
    settings = session.settings
    brokers = resolve_brokers(settings)
    partitions = _partitions(session)
    samples = Samples(ask)
    with _bar(session) as bar:
        source = KafkaSource(settings, partitions, bar.wait_for)
        try:
            verifier = Verifier(
                source,
                RepeatLimits(settings.repeat_window_commands, settings.repeat_window_ms),
                only=run.encode() if run is not None else None,
                shown_per_rule=limit,
                look_at=samples.look_at,
                progress=bar,
            )
            report = verifier.run()
            if run is not None and not sum(report.commands.values()) and not verifier.entities:
                raise UserError(
                    f"Nothing is known of the run {run!r} in the topics of {settings.name('run-commands')!r}.",
                    "check the run's id and the prefix",
                )
            if ask:
                _ask(session, samples, source, verifier, bar)
            describe = Descriptions(source)
            return report, {"brokers": brokers, "prefix": settings.prefix, **report.as_json(describe)}
        finally:
            source.close()


def _ask(session: Session, samples: Samples, source: KafkaSource, verifier: Verifier, bar: _Bar) -> None:
    async def work(client: RunlaneClient) -> None:
        questions = Questions(client, source, verifier.tally)
        bar.begin("asking the workers", len(samples.chosen))
        for sample in samples.chosen:
            await questions.ask(sample)
            bar.advance(1)

    with_client(session, work)


def _partitions(session: Session) -> int:
    """How many partitions the topics have. Raises `UserError` when this is no deployment that can be verified."""
    settings = session.settings
    patience_s = settings.command_timeout_s
    try:
        return topic_admin.require_equal_partitions(settings, patience_s=patience_s)
    except topic_admin.TopicLayoutError as error:
        found = topic_admin.prefixes(settings, patience_s=patience_s)
        if settings.prefix in found:
            raise
        named = ", ".join(repr(prefix) for prefix in found) if found else "none"
        raise UserError(
            f"There is no deployment with the prefix {settings.prefix!r} on {resolve_brokers(settings)}.",
            f"prefixes of deployments there: {named}; give one by --prefix or RUNLANE_PREFIX",
        ) from error


class _Bar:
    """How far the verification is, on a terminal; implements `streams.verify.verifier.Progress`."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)
        self._what = ""

    def begin(self, what: str, total: int) -> None:
        """See `Progress`."""
        self._what = what
        self._progress.reset(self._task, total=max(1, total), description=escape(what))

    def advance(self, steps: int) -> None:
        """See `Progress`."""
        self._progress.update(self._task, advance=steps, description=escape(self._what))

    def wait_for(self, what: str) -> None:
        """Say what is waited for, until it goes on."""
        self._progress.update(self._task, description=escape(what))


@contextmanager
def _bar(session: Session) -> Iterator[_Bar]:
    console = session.output.messages
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield _Bar(progress)


def _collect_no_garbage() -> None:
    # Millions of records and no cycles among them: to look for some takes a fifth of the time.
    gc.disable()
