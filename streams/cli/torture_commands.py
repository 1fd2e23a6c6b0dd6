"""`runlane torture`: real faults under load, and the check that nothing is lost and nothing happens twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated

import typer

from streams.cli.client_work import interruptible, quiet_kafka
from streams.cli.session import session_of
from streams.torture.schedule import FaultKind
from streams.user_errors import UserError

app = typer.Typer()

_SEEDS = 2**31


@app.command()
def torture(
    context: typer.Context,
    faults: Annotated[int, typer.Option(min=1, help="How many faults.")] = 60,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Decides what is harmed, how, when, and the load; default: by chance."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Workers, all the time; one more comes and goes.")] = 2,
    executors: Annotated[int, typer.Option(min=0, help="Executors.")] = 2,
    partitions: Annotated[int, typer.Option(min=2, help="Partitions; more than there are workers.")] = 3,
    rate: Annotated[float, typer.Option(min=20, help="Commands of the load per second.")] = 300,
    pace: Annotated[float, typer.Option(min=0.5, help="Mean time from fault to fault, in seconds.")] = 2.5,
    alone: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Scales how many faults come alone, which take most of the time; 1: every third.",
        ),
    ] = 1.0,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Begin no further fault when so many minutes are over.")
    ] = None,
    kind: Annotated[
        list[FaultKind] | None, typer.Option(help="Only faults of this kind; may be given several times.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a report to this file, in Markdown.", metavar="FILE.md")
    ] = None,
    note: Annotated[
        str, typer.Option(help="A sentence for the report, on the circumstances.", metavar="TEXT")
    ] = "",
    keep: Annotated[bool, typer.Option("--keep", help="Keep logs and data also when all is well.")] = False,
) -> None:
    """Kill, freeze, cut off and restart everything under load, and check that each command took effect once.

    Starts a broker of its own (also when --brokers or RUNLANE_BROKERS names one), workers and executors, each
    behind a proxy that can harm its connections, and sends commands all the time. At the end it waits for all
    that was sent, compares it with what the topics hold, and verifies them as `runlane verify` does. Exits 1 when
    anything is lost, applied twice or not as it has to be; the folder with all logs and the broker's data is then
    kept.
    """
    # Only this command needs them, and every command has to start fast.
    from streams.torture import report as reporting
    from streams.torture.ordeal import Torture, TortureOptions
    from streams.torture.screen import Screen

    session = session_of(context)
    quiet_kafka(session)
    if partitions <= workers:
        raise UserError(
            f"{partitions} partitions are too few for {workers} workers and one that comes and goes.",
            "give more --partitions",
            exit_code=2,
        )
    options = TortureOptions(
        faults=faults,
        seed=random.SystemRandom().randrange(_SEEDS) if seed is None else seed,
        workers=workers,
        executors=executors,
        partitions=partitions,
        rate=rate,
        pace_s=pace,
        alone=alone,
        kinds=tuple(kind) if kind else tuple(FaultKind),
        minutes=minutes,
    )
    output = session.output
    output.step(f"the seed is {options.seed}")
    with Screen(output.messages) as screen:
        torture = Torture(session.settings, options, step=output.step, on_progress=screen.watch)
        outcome = interruptible(lambda: torture.run(keep=keep))
    output.result(reporting.as_json(outcome), lambda: reporting.view(outcome))
    if report is not None:
        report.write_text(reporting.markdown(outcome, note), encoding="utf-8")
        output.step(f"the report is in {report}")
    if outcome.problems:
        raise UserError(
            f"Seed {options.seed} found {len(outcome.problems)} problems; the first: {outcome.problems[0]}",
            f"the same faults again: {reporting.command_line(options)}; logs and data: {outcome.folder}",
        )
