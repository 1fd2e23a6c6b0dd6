"""What a benchmark hands back, and how it is shown: how it was measured, a table, figures beside targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.console import Console
from rich.markup import escape

from streams.cli.output import facts, table

Comparison = Literal["at least", "at most"]


@dataclass(frozen=True)
class Target:
    """What a figure has to reach."""

    comparison: Comparison
    value: float

    def is_reached(self, value: float) -> bool:
        """Whether `value` is good enough."""
        return value >= self.value if self.comparison == "at least" else value <= self.value


@dataclass(frozen=True)
class Figure:
    """One number that counts; `target` None: there is no target for it."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    reached: bool | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        reached = None if self.target is None else self.target.is_reached(self.value)
        object.__setattr__(self, "reached", reached)


@dataclass(frozen=True)
class BenchResult:
    """The outcome of one benchmark."""

    name: str
    how: str
    """What was measured and how, for people who want to judge the figures."""
    figures: list[Figure]
    columns: list[str]
    rows: list[list[Any]]
    """Numbers, or text, by column."""
    checks: dict[str, Any]
    """What was counted to see that the work was really done, by what name."""
    samples: dict[str, Any] = field(default_factory=dict)
    """Every single measurement, by what name."""


Conditions = dict[str, float]
"""How busy the machine was at one moment, see `streams.bench.setting.conditions`."""


def show(console: Console, result: BenchResult, before: Conditions, after: Conditions) -> None:
    """Print one result for people, with how busy the machine was before and after."""
    console.rule(f"[bold]{escape(result.name)}[/bold]", align="left")
    console.print(f"[dim]{escape(result.how)}[/dim]", soft_wrap=True)
    console.print()
    console.print(table(result.columns, [[_cell(cell) for cell in row] for row in result.rows]))
    console.print()
    console.print(table(("", "measured", "target", ""), [_figure_row(figure) for figure in result.figures]))
    console.print()
    busy = (f"{name} {number(before[name])} to {number(after[name])}" for name in before)
    console.print(f"[dim]The machine meanwhile: {'; '.join(busy)}[/dim]")
    console.print()


def show_setting(console: Console, machine: dict[str, Any], versions: dict[str, str]) -> None:
    """Print where the figures come from."""
    console.print(facts({**machine, **versions}))
    console.print()


def number(value: float) -> str:
    """A number with as many digits as matter: `12,345`, `12.3`, `0.45`."""
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"


def _figure_row(figure: Figure) -> Sequence[str]:
    target = figure.target
    wanted = "" if target is None else f"{target.comparison} {number(target.value)} {figure.unit}"
    mark = {None: "", True: "[green]reached[/green]", False: "[red]missed[/red]"}[figure.reached]
    return (escape(figure.name), f"[bold]{number(figure.value)} {escape(figure.unit)}[/bold]", wanted, mark)


def _cell(cell: Any) -> str:
    if isinstance(cell, float):
        return number(cell)
    return f"{cell:,}" if isinstance(cell, int) and not isinstance(cell, bool) else escape(str(cell))
