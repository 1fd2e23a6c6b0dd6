"""What a torture closes with: a table for people, JSON for machines, a page for the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streams.bench.setting import machine, versions
from streams.cli.output import table
from streams.terminal_text import printable
from streams.torture.ordeal import Outcome, TortureOptions
from streams.torture.pauses import KindSummary, summarize
from streams.torture.schedule import FaultKind, meaning

_SHOWN_PROBLEMS = 20
_COLUMNS = (
    "fault",
    "number",
    "alone",
    "median wait",
    "longest wait",
    "longest wait, others in progress",
)
_RULE_COLUMNS = ("rule", "checked", "violations", "not checkable")


def command_line(options: TortureOptions) -> str:
    """How to do it again."""
    words = [
        "runlane torture",
        f"--seed {options.seed}",
        f"--faults {options.faults}",
        f"--workers {options.workers}",
        f"--executors {options.executors}",
        f"--partitions {options.partitions}",
        f"--rate {options.rate:g}",
        f"--pace {options.pace_s:g}",
        f"--alone {options.alone:g}",
    ]
    if options.minutes is not None:
        words.append(f"--minutes {options.minutes:g}")
    if options.kinds != tuple(FaultKind):
        words += [f"--kind {kind}" for kind in options.kinds]
    return " ".join(words)


def as_json(outcome: Outcome) -> dict[str, Any]:
    """All of it, for machines."""
    account = outcome.account
    return {
        "seed": outcome.options.seed,
        "again": command_line(outcome.options),
        "started": outcome.started.isoformat(timespec="seconds"),
        "seconds": round(outcome.seconds, 1),
        "faults": len(outcome.windows),
        "byKind": [
            {
                "kind": summary.kind,
                "count": summary.count,
                "alone": summary.alone,
                "medianWaitSeconds": _rounded(summary.median_s),
                "longestWaitSeconds": _rounded(summary.longest_s),
                "longestWaitOverlappingSeconds": _rounded(summary.longest_overlapping_s),
            }
            for summary in summarize(outcome.windows)
        ],
        "longestWaitSeconds": _rounded(outcome.longest_wait_s),
        "sent": account.sent,
        "acknowledged": account.acknowledged,
        "applied": account.applied,
        "answered": account.answered,
        "deadLetters": account.buried,
        "events": outcome.events,
        "eventsOfExecutors": account.other_events,
        "counts": outcome.counts,
        "doubledRequests": outcome.doubled_requests,
        "lost": len(account.lost),
        "twice": len(account.twice),
        "problems": outcome.problems,
        "verify": {
            "records": outcome.verified.records,
            "violations": outcome.verified.violations,
            "rules": {
                rule.name: {
                    "checked": count.checked,
                    "violations": count.violations,
                    "notCheckable": count.not_checkable,
                }
                for rule, count in outcome.verified.rules.items()
            },
            "notes": list(outcome.verified.notes),
        },
        "folder": outcome.folder,
        "versions": versions(own_broker=True),
        "machine": machine(),
    }


def view(outcome: Outcome) -> RenderableType:
    """All of it, for people."""
    faults = table(_COLUMNS, [_row(summary) for summary in summarize(outcome.windows)], title="Faults")
    for column in faults.columns[1:]:
        column.justify = "right"
    parts: list[RenderableType] = [
        "",
        faults,
        "",
        _account(outcome),
        "",
        _rules(outcome),
        "",
        _verdict(outcome),
    ]
    parts += [Text(f"  {printable(problem)}", style="red") for problem in _first(outcome.problems)]
    again = Text(f"To do the same again: {command_line(outcome.options)}", style="dim")
    return Group(*parts, again)


def markdown(outcome: Outcome, note: str = "") -> str:
    """All of it, as a page. `note`: what the reader should know of the circumstances."""
    options, account = outcome.options, outcome.account
    summaries = summarize(outcome.windows)
    facts = {
        "date": f"{outcome.started:%Y-%m-%d %H:%M} UTC",
        "repeat": f"`{command_line(options)}`",
        "took": f"{outcome.seconds / 60:.1f} minutes, from the first command to the last effect",
        **{name: str(value) for name, value in machine().items()},
        **versions(own_broker=True),
    }
    waits = (
        "A wait is the time from when a client handed a command to its producer until what came of it was visible "
        "to a reader of committed records: of the commands that a fault could hold up, the longest. While an "
        "executor, or its link, was harmed, it is the longest time between two events of a run that executors "
        "execute. *Alone*: no other fault was in progress, so the wait is this one's doing; else it may be another's."
    )
    lines = [
        "# Torture",
        f"{_faults(outcome)} while {options.rate:g} commands per second were sent to {options.partitions} "
        f"partitions, {options.workers} workers and {options.executors} executors on one broker. "
        f"**{_verdict_text(outcome)}**",
        *([note] if note else []),
        _markdown_table(("", ""), facts.items()),
        "## Faults",
        waits,
        _markdown_table(_COLUMNS, [_row(summary) for summary in summaries]),
        f"The longest wait of any command was {outcome.longest_wait_s:.1f} s.",
        "What was done:",
        "\n".join(f"- `{summary.kind}`: {meaning(summary.kind)}." for summary in summaries),
        "## Commands",
        _markdown_table(("", ""), _account_rows(outcome)),
        "Sent, by kind:",
        _markdown_table(("kind", "records"), [(kind, f"{count:,}") for kind, count in account.sent.items()]),
    ]
    lines += [
        "## `runlane verify`",
        f"{outcome.verified.records:,} records of all topics were read and held against the rules: "
        f"{outcome.verified.violations:,} violations.",
        _markdown_table(_RULE_COLUMNS, _rule_rows(outcome)),
        *outcome.verified.notes,
    ]
    if outcome.problems:
        lines += ["## Problems", "\n".join(f"- {printable(problem)}" for problem in outcome.problems)]
    return "\n\n".join(lines) + "\n"


def _faults(outcome: Outcome) -> str:
    struck, planned = len(outcome.windows), outcome.options.faults
    return (
        f"{struck} faults" if struck == planned else f"{struck} of {planned} faults, as far as the time went,"
    )


def _row(summary: KindSummary) -> Sequence[str]:
    waits = (summary.median_s, summary.longest_s, summary.longest_overlapping_s)
    return (
        str(summary.kind),
        str(summary.count),
        str(summary.alone),
        *("" if wait is None else f"{wait:.1f} s" for wait in waits),
    )


def _account(outcome: Outcome) -> Table:
    made = Table(title="Commands", title_justify="left", show_header=False, box=None, pad_edge=False)
    made.add_column()
    made.add_column(justify="right", style="bold")
    for name, value in _account_rows(outcome):
        made.add_row(name, value)
    return made


def _account_rows(outcome: Outcome) -> list[tuple[str, str]]:
    account = outcome.account
    counts = {
        "records sent": sum(account.sent.values()),
        "acknowledged by the broker": account.acknowledged,
        "commands that made an event": account.applied,
        "answers asked for, and given": account.answered,
        "dead letters": account.buried,
        "events": outcome.events,
        "of these by executors": account.other_events,
        **outcome.counts,
        "requests that the broker got twice": outcome.doubled_requests,
        "lost": len(account.lost),
        "twice": len(account.twice),
        "violations found by runlane verify": outcome.verified.violations,
        "problems in all": len(outcome.problems),
    }
    return [(name, f"{count:,}") for name, count in counts.items()]


def _rules(outcome: Outcome) -> Table:
    title = f"runlane verify, {outcome.verified.records:,} records"
    made = table(_RULE_COLUMNS, _rule_rows(outcome), title=title)
    for column in made.columns[1:]:
        column.justify = "right"
    return made


def _rule_rows(outcome: Outcome) -> list[tuple[str, ...]]:
    return [
        (rule.name, f"{count.checked:,}", f"{count.violations:,}", f"{count.not_checkable:,}")
        for rule, count in outcome.verified.rules.items()
    ]


def _verdict(outcome: Outcome) -> Text:
    return Text(_verdict_text(outcome), style="bold red" if outcome.problems else "bold green")


def _verdict_text(outcome: Outcome) -> str:
    if outcome.problems:
        return f"NOT as it has to be: {len(outcome.problems)} problems."
    return "Every command took effect exactly once."


def _first(problems: Sequence[str]) -> Iterable[str]:
    yield from problems[:_SHOWN_PROBLEMS]
    if len(problems) > _SHOWN_PROBLEMS:
        yield f"... and {len(problems) - _SHOWN_PROBLEMS} more"


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
