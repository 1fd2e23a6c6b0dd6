"""How the demo closes on the screen: the account, what a few runs found out, where to look further."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streams.demo.closing import Expected
from streams.demo.ledger import Ledger
from streams.demo.show import Outcome
from streams.terminal_text import printable

_SAMPLES = 3
_FAILURES = 3


def as_json(outcome: Outcome) -> dict[str, Any]:
    """The account for machines."""
    ledger = outcome.ledger
    return {
        "prefix": outcome.settings.prefix,
        "brokers": outcome.settings.brokers,
        "seconds": round(outcome.seconds, 2),
        "outageSeconds": None if outcome.outage_s is None else round(outcome.outage_s, 2),
        "records": ledger.records,
        "commands": ledger.commands,
        "applied": ledger.applied,
        "repeats": ledger.repeats,
        "questions": ledger.questions,
        "refused": ledger.refused,
        "events": ledger.events,
        "dispatches": ledger.dispatches,
        "runs": ledger.runs,
        "ended": dict(ledger.statuses),
        "deadLetters": dict(ledger.dead_letters),
        "lost": ledger.lost,
        "twice": ledger.twice,
        "seqGaps": ledger.seq_gaps,
        "eventsAfterEnd": ledger.after_end,
        "endsUnlikeLastEvent": ledger.unlike_ends,
        "problems": outcome.problems,
    }


def closing_view(outcome: Outcome) -> RenderableType:
    """All of it."""
    ledger, expected = outcome.ledger, outcome.expected
    return Group("", _samples(ledger), "", _account(ledger, expected), _pace(outcome), _verdict(outcome))


def where_to_look(outcome: Outcome, *, local_broker: bool) -> Text:
    """Commands for whoever wants to see more."""
    settings = outcome.settings
    lines = [f"export RUNLANE_PREFIX={settings.prefix}"]
    if not local_broker:
        lines.append(f"export RUNLANE_BROKERS={settings.brokers}")
    lines.append(f"runlane events {next(iter(sorted(outcome.ledger.ends)), 'RUN')}")
    lines += ["runlane terminals --status failed", "runlane dead-letters list"]
    text = Text("\nThe topics stay; to look at them:\n", style="dim")
    return text.append("\n".join(f"  {line}" for line in lines), style="not dim")


def _pace(outcome: Outcome) -> Text:
    ledger = outcome.ledger
    text = Text(
        f"{ledger.commands:,} commands and {ledger.events:,} events in {outcome.seconds:.1f} s", style="dim"
    )
    if outcome.outage_s is not None:
        text.append(
            f", of which {outcome.outage_s:.1f} s without a worker: it was killed by kill -9 and started again"
        )
    return text.append(".")


def _verdict(outcome: Outcome) -> Text:
    if outcome.problems:
        return Text(f"NOT as it has to be: {'; '.join(outcome.problems)}.", style="bold red")
    return Text("Every command was applied exactly once.", style="bold green")


def _account(ledger: Ledger, expected: Expected) -> RenderableType:
    """The closing table."""
    table = Table(
        title="What the topics say, read from their first record to their last",
        title_justify="left",
        title_style="bold",
        show_header=False,
        box=None,
        pad_edge=False,
    )
    table.add_column()
    table.add_column(justify="right", style="bold")
    table.add_column(style="dim")
    table.add_row("runs submitted", f"{ledger.runs:,}", f"dispatched {ledger.dispatches:,} times")
    for status, count in sorted(ledger.statuses.items()):
        note = f"{expected.failing:,} had to fail: unusable rows or states" if status == "failed" else ""
        table.add_row(f"  {status}", f"{count:,}", note)
    table.add_row("commands sent", f"{ledger.commands:,}", "by clients and the executor")
    table.add_row("  applied", f"{ledger.applied:,}", "each made its event")
    if ledger.refused or ledger.nothing_to_do:
        table.add_row("  refused, or nothing to do", f"{ledger.refused + ledger.nothing_to_do:,}", "")
    repeats = f"{expected.sent_twice:,} on purpose; they changed nothing"
    table.add_row("  sent again", f"{ledger.repeats:,}", repeats)
    if ledger.questions:
        table.add_row("questions", f"{ledger.questions:,}", "change nothing")
    table.add_row("events", f"{ledger.events:,}", "")
    broken = f"{expected.broken:,} broken records were sent on purpose"
    table.add_row("dead letters", f"{ledger.dead_letters.total():,}", broken)
    for name, count in ledger.faults.items():
        table.add_row(name, Text(f"{count:,}", style="bold red" if count else "bold green"), "")
    return table


def _samples(ledger: Ledger) -> RenderableType:
    """Which airports are the loneliest, and why some runs failed, by the ends of the runs."""
    completed = [end for end in ledger.ends.values() if end["status"] == "completed"]
    completed.sort(key=lambda end: end["result"]["loneliest"]["km"], reverse=True)
    table = Table(title="Some of what the runs found out", show_header=False, box=None, pad_edge=False)
    table.title_justify, table.title_style = "left", "bold"
    for end in completed[:_SAMPLES]:
        loneliest = end["result"]["loneliest"]
        table.add_row(
            Text(printable(end["runId"]), style="green"),
            Text(
                printable(
                    f"{loneliest['airport']} is {loneliest['km']:,} km from its nearest neighbour, "
                    f"{loneliest['nearest']}; the mean of the run's {end['totalRows']} airports is "
                    f"{end['result']['meanKmToNearest']:,} km"
                )
            ),
        )
    for end in _different_failures(ledger):
        reason = printable(end["error"].splitlines()[0])
        table.add_row(Text(printable(end["runId"]), style="red"), Text(f"failed: {reason}"))
    return table


def _different_failures(ledger: Ledger) -> list[dict[str, Any]]:
    failed = [end for end in ledger.ends.values() if end["status"] == "failed"]
    kinds = set()
    chosen = []
    for end in sorted(failed, key=lambda end: str(end["runId"])):
        # The last word of the reason tells the kinds apart.
        kind = end["error"].splitlines()[0].split()[-1]
        if kind not in kinds:
            kinds.add(kind)
            chosen.append(end)
    return chosen[:_FAILURES]
