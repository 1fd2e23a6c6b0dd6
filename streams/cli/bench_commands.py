"""`runlane bench`: how fast, how small and how quick to recover, beside what it has to reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from streams.cli.session import session_of

app = typer.Typer(
    help="Measure how fast, how small and how quick to recover runlane is, beside what it has to reach.",
    epilog="Uses a fresh broker of its own, unless RUNLANE_BROKERS or --brokers names some. Without a "
    "benchmark's name it runs all of them, which takes three quarters of an hour.",
)

Quick = Annotated[bool, typer.Option("--quick", help="Much smaller: to see that all works, not to judge.")]
ResultsDir = Annotated[
    Path, typer.Option("--results", help="Folder that gets the results as DATE.json.", metavar="DIR")
]
Rounds = Annotated[int | None, typer.Option(min=1, help="How often everything is measured, in turn.")]
Repeats = Annotated[int | None, typer.Option(min=1, help="How often it is done.")]
Runs = Annotated[int | None, typer.Option(min=1, help="How many runs the commands go to, in turn.")]
_RESULTS = Path("bench-results")


@app.callback(invoke_without_command=True)
def bench(context: typer.Context, quick: Quick = False, results: ResultsDir = _RESULTS) -> None:
    """Run all benchmarks, or the named one."""
    if context.invoked_subcommand is None:
        _run(context, quick, results, {})


@app.command("all")
def run_all(context: typer.Context, quick: Quick = False, results: ResultsDir = _RESULTS) -> None:
    """Run all benchmarks, one after another."""
    _run(context, quick, results, {})


@app.command()
def throughput(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    commands: Annotated[int | None, typer.Option(min=1, help="How many commands are preloaded.")] = None,
    faust_commands: Annotated[
        int | None, typer.Option(min=1, help="How many of them the plain Faust agent does.")
    ] = None,
    runs: Runs = None,
    rounds: Rounds = None,
) -> None:
    """Preloaded commands through runlane, a plain Faust agent, and a bare consume-produce loop."""
    given = {"commands": commands, "faust_commands": faust_commands, "runs": runs, "rounds": rounds}
    _run(context, quick, results, {"throughput": given})


@app.command()
def latency(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    rate: Annotated[
        list[int] | None, typer.Option(min=1, help="Commands per second; may be given several times.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="How long each rate is measured.")] = None,
    rounds: Rounds = None,
) -> None:
    """From the moment a command is due to be sent until its event is visible, at several rates."""
    given = {"rates": tuple(rate) if rate else None, "seconds": seconds, "rounds": rounds}
    _run(context, quick, results, {"latency": given})


@app.command()
def restore(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    records: Annotated[int | None, typer.Option(min=1, help="Records in the changelog.")] = None,
    runs: Runs = None,
    rounds: Rounds = None,
) -> None:
    """How fast a worker that has lost its disk reads its state back from the changelog."""
    _run(context, quick, results, {"restore": {"records": records, "runs": runs, "rounds": rounds}})


@app.command()
def memory(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    events: Annotated[int | None, typer.Option(min=1, help="Events that are stored.")] = None,
    runs: Runs = None,
) -> None:
    """What a worker with many stored events takes, after loading them and after a restart."""
    _run(context, quick, results, {"memory": {"events": events, "runs": runs}})


@app.command()
def calls(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    rate: Annotated[int | None, typer.Option(min=1, help="Calls per second.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="How long they are measured.")] = None,
    commands: Annotated[int | None, typer.Option(min=16, help="Commands of the mixed set.")] = None,
    rounds: Rounds = None,
) -> None:
    """How long claim, publish and hit of a call take, and how fast a mixed set of commands is applied."""
    given = {"rate": rate, "seconds": seconds, "commands": commands, "rounds": rounds}
    _run(context, quick, results, {"calls": given})


@app.command("full-runs")
def full_runs(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    runs: Annotated[int | None, typer.Option(min=1, help="How many runs are full.")] = None,
    commands: Annotated[int | None, typer.Option(min=5, help="Commands per round on full runs.")] = None,
    rounds: Rounds = None,
) -> None:
    """What a command costs on a run with 500 events and 1,000 calls, against a fresh run."""
    _run(context, quick, results, {"full-runs": {"runs": runs, "commands": commands, "rounds": rounds}})


@app.command("live-runs")
def live_runs(
    context: typer.Context, quick: Quick = False, results: ResultsDir = _RESULTS, runs: Runs = None
) -> None:
    """The memory of a worker with 100,000 live runs, and how long it takes to restore them."""
    _run(context, quick, results, {"live-runs": {"runs": runs}})


@app.command()
def verify(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    events: Annotated[int | None, typer.Option(min=1, help="Events that are stored.")] = None,
    runs: Runs = None,
) -> None:
    """How long `runlane verify` takes over the topics of a deployment, and in how much memory."""
    _run(context, quick, results, {"verify": {"events": events, "runs": runs}})


@app.command()
def rates(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    acquires: Annotated[int | None, typer.Option(min=100, help="How many acquires are preloaded.")] = None,
    buckets: Annotated[int | None, typer.Option(min=1, help="How many buckets they go to.")] = None,
    seconds: Annotated[float | None, typer.Option(min=1, help="How long one process takes permits.")] = None,
    rounds: Rounds = None,
    redis_server: Annotated[
        str | None,
        typer.Option(help="The Redis to measure against; default: redis-server on PATH.", metavar="PATH"),
    ] = None,
) -> None:
    """Permits by commands and by blocks, beside scripts in Redis; and who is served when many wait."""
    given = {"acquires": acquires, "buckets": buckets, "seconds": seconds, "rounds": rounds}
    _run(context, quick, results, {"rates": {**given, "redis_server": redis_server}})


@app.command()
def failover(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    changelog_records: Annotated[int | None, typer.Option(min=1, help="Records in the changelog.")] = None,
    repeats: Repeats = None,
) -> None:
    """From kill -9 to the first new command that the restarted worker has applied, disk kept and lost."""
    given = {"changelog_records": changelog_records, "repeats": repeats}
    _run(context, quick, results, {"failover": given})


@app.command()
def rebalance(
    context: typer.Context,
    quick: Quick = False,
    results: ResultsDir = _RESULTS,
    rate: Annotated[int | None, typer.Option(min=1, help="Commands per second meanwhile.")] = None,
    repeats: Repeats = None,
) -> None:
    """The longest pause of events when a second worker joins, and when it leaves cleanly."""
    _run(context, quick, results, {"rebalance": {"rate": rate, "repeats": repeats}})


def _run(context: typer.Context, quick: bool, results: Path, given: dict[str, dict[str, Any]]) -> None:
    """Run the benchmarks of `given`, with these fields of their plans set; all of them when it is empty."""
    # The processes that it measures are its imports too; no other command needs them.
    from streams.bench import suite
    from streams.bench.report import show, show_setting

    if context.parent is not None:
        quick = quick or bool(context.parent.params.get("quick"))
    session = session_of(context)
    output = session.output
    plans = {}
    for name, bench in suite.BENCHES.items():
        if not given or name in given:
            changes = {field: value for field, value in given.get(name, {}).items() if value is not None}
            plans[name] = replace(bench.quick if quick else bench.full, **changes)
    report, file = suite.run(
        session.settings,
        plans,
        output.messages,
        results,
        lambda *result: None if output.as_json else show(output.console, *result),
    )
    if output.as_json:
        output.result(report, lambda: "")
    else:
        show_setting(output.console, report.machine, report.versions)
    output.messages.print(f"[dim]written to {file}[/dim]")
    for name, reason in report.failures.items():
        output.warn(f"{name} could not be finished: {reason}")
    if report.failures:
        raise typer.Exit(1)
