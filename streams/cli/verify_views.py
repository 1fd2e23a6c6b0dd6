"""How a verification is shown to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streams.cli.output import table
from streams.terminal_text import one_line
from streams.verify.report import Report

_SHOWN_KEY = 60


def report_view(report: Report, violations: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What was read, how the rules fared, and the verdict; `violations` as in the report for machines."""
    parts: list[RenderableType] = [
        _topics(report),
        "",
        _lanes(report),
        "",
        _commands(report),
        "",
        _rules(report),
    ]
    reasons = _reasons(report)
    if reasons:
        parts += ["", Text("not checkable", style="bold"), *reasons]
    if report.notes:
        parts += ["", *(Text(f"note: {note}", style="yellow") for note in report.notes)]
    if violations:
        parts += ["", Text("violations", style="bold red"), *_violations(report, violations)]
    return Group(*parts, "", _verdict(report))


def _topics(report: Report) -> Table:
    by_topic: dict[str, list[Any]] = {}
    for read in report.topics:
        by_topic.setdefault(read.topic, []).append(read)
    rows = [
        (
            topic,
            f"{sum(read.records for read in reads):,}",
            "  ".join(f"{read.start}..{read.end}" for read in reads),
        )
        for topic, reads in by_topic.items()
    ]
    return _with_numbers(("topic", "records", "offsets of each partition"), rows, {1})


def _lanes(report: Report) -> Table:
    rows = []
    for lane in report.cut.lanes.values():
        marks = "  ".join(f"{topic}@{offset}" for topic, offset in lane.watermarks.items())
        time = datetime.fromtimestamp(lane.clock / 1000).strftime("%Y-%m-%d %H:%M:%S") if lane.clock else "-"
        rows.append((lane.partition, marks or "nothing done yet", f"{lane.transactions:,}", time))
    return _with_numbers(("lane", "checked up to", "transactions", "lane's time"), rows, {0, 2})


def _commands(report: Report) -> Text:
    fates = [f"{number:,} {fate}" for fate, number in report.commands.items() if number]
    return Text.assemble(("commands  ", "bold"), ", ".join(fates) or "none")


def _rules(report: Report) -> Table:
    rows = [
        (
            rule.name,
            f"{count.checked:,}",
            Text(f"{count.violations:,}", style="bold red" if count.violations else "green"),
            Text(f"{count.not_checkable:,}", style="yellow" if count.not_checkable else ""),
        )
        for rule, count in report.rules.items()
    ]
    return _with_numbers(("rule", "checked", "violations", "not checkable"), rows, {1, 2, 3})


def _reasons(report: Report) -> list[Text]:
    return [
        Text(f"{rule.name}: {number:,} because {reason}")
        for rule, count in report.rules.items()
        for reason, number in count.unknown.items()
    ]


def _violations(report: Report, violations: Iterable[Mapping[str, Any]]) -> list[Text]:
    lines = []
    for violation in violations:
        line = Text.assemble((f"{violation['rule']}  ", "bold"), (_place(violation["place"]), "cyan"))
        if violation.get("key"):
            key = one_line(violation["key"])
            line.append(f"  {key if len(key) <= _SHOWN_KEY else key[:_SHOWN_KEY] + '...'}")
        line.append(f"  {violation['what']}")
        if violation["see"]:
            line.append(f"  (see {', '.join(map(_place, violation['see']))})", style="dim")
        lines.append(line)
    for rule, count in report.rules.items():
        if hidden := count.violations - len(count.shown):
            lines.append(Text(f"{rule.name}  and {hidden:,} more", style="dim"))
    return lines


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['topic']}[{place['partition']}]@{place['offset']}"


def _verdict(report: Report) -> Text:
    read = f"{report.records:,} records were read"
    if report.violations:
        return Text(f"{report.violations:,} violations; {read}.", style="bold red")
    if not report.records:
        return Text("There is nothing to verify yet: the topics are empty.", style="yellow")
    return Text(f"No violation; {read}.", style="bold green")


def _with_numbers(columns: Sequence[str], rows: Iterable[Sequence[object]], numbers: set[int]) -> Table:
    made = table(columns, rows)
    for number in numbers:
        made.columns[number].justify = "right"
    return made
