"""Which runs the demo submits: the data set in slices, and some that have to fail."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from streams.demo.airports import UNUSABLE_STATES, Airport, all_airports, as_row

_NOWHERE = "ZZ"
_DAMAGED_EVERY = 40
_REPEATED_EVERY = 20

FEWEST_RUNS, MOST_RUNS = 4, 3000


@dataclass(frozen=True)
class PlannedRun:
    """One run that is to be submitted."""

    run_id: str
    params: dict[str, Any]
    fails: bool
    """Its rows or its state are unusable, so it has to end as failed."""
    sent_twice: bool
    """Its submit is sent again under the same id, as by a client that got no answer."""


def plan_runs(count: int) -> list[PlannedRun]:
    """`count` runs (4..3,000) over the airports, state by state from west to east in each.

    Below the number of states only the largest are taken. Every 40th slice has a damaged row, one run asks
    for a state that does not exist, and some states are unusable in the data set itself.
    """
    runs = []
    slices = _slices(count - 1)
    for index, (state, part, parts, airports) in enumerate(slices):
        rows = [as_row(airport) for airport in airports]
        damaged = index % _DAMAGED_EVERY == min(_DAMAGED_EVERY, len(slices)) // 2
        if damaged:
            _damage(rows, index)
        runs.append(
            PlannedRun(
                run_id=f"survey-{state}-{part:02}",
                params={"state": state, "part": part, "parts": parts, "airports": rows},
                fails=damaged or state in UNUSABLE_STATES,
                sent_twice=index % _REPEATED_EVERY == 0,
            )
        )
    nowhere = {"state": _NOWHERE, "part": 1, "parts": 1, "airports": runs[0].params["airports"]}
    runs.insert(len(runs) // 2, PlannedRun(f"survey-{_NOWHERE}-01", nowhere, fails=True, sent_twice=False))
    return runs


def _slices(count: int) -> list[tuple[str, int, int, list[Airport]]]:
    by_state: defaultdict[str, list[Airport]] = defaultdict(list)
    for airport in all_airports():
        by_state[airport.state].append(airport)
    largest = sorted(by_state, key=lambda state: (-len(by_state[state]), state))[:count]
    parts = dict.fromkeys(largest, 1)
    for _ in range(count - len(largest)):
        most = max(largest, key=lambda state: len(by_state[state]) / parts[state])
        parts[most] += 1
    slices = []
    for state in sorted(parts):
        airports = sorted(by_state[state], key=lambda airport: (airport.longitude, airport.iata))
        for part in range(parts[state]):
            begin, end = (len(airports) * number // parts[state] for number in (part, part + 1))
            slices.append((state, part + 1, parts[state], airports[begin:end]))
    # One slice of every state after another, so that the newest lines on the screen come from everywhere.
    return sorted(slices, key=lambda one: (one[1] / one[2], one[0]))


def _damage(rows: list[list[Any]], index: int) -> None:
    """Spoil a row's latitude as careless tools do: a decimal comma, or a value no place has."""
    row = rows[len(rows) // 2]
    comma = f"{row[2]:.4f}".replace(".", ",")
    row[2] = comma if index // _DAMAGED_EVERY % 2 else round(abs(row[2]) + 100, 4)
