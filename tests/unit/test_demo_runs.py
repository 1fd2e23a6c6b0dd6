"""The demo's runs: what is planned, and what the function that executes them finds out."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from typing import Any

import pytest

from streams.demo import airports
from streams.demo.airport_runs import survey_airports
from streams.demo.airports import UnusableRowError, all_airports, from_row
from streams.demo.plan import FEWEST_RUNS, MOST_RUNS, PlannedRun, plan_runs
from streams.user_errors import UserError


class Context:
    """The context that the function gets, with what it reports."""

    def __init__(self, params: dict[str, Any]) -> None:
        self.params = params
        self.lines: list[str] = []
        self.reports: list[str] = []

    def log(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)

    def progress(self, status: str, **_: Any) -> None:
        """Keep a report."""
        self.reports.append(status)


def run_of(run_id: str) -> PlannedRun:
    """One of the 300 planned runs."""
    return next(run for run in plan_runs(300) if run.run_id == run_id)


@pytest.mark.parametrize("count", [FEWEST_RUNS, 12, 57, 300, MOST_RUNS])
def test_as_many_runs_as_asked_for_some_of_which_fail(count: int) -> None:
    planned = plan_runs(count)
    assert len({run.run_id for run in planned}) == count
    assert 2 <= sum(run.fails for run in planned) <= count // 2
    assert any(run.sent_twice for run in planned)
    assert all(run.params["airports"] for run in planned)
    assert plan_runs(count) == planned


def test_a_few_hundred_runs_cover_every_airport_once() -> None:
    sent = [row[0] for run in plan_runs(300) if "ZZ" not in run.run_id for row in run.params["airports"]]
    assert len(sent) == 3376
    assert set(sent) == {airport.iata for airport in all_airports()}


@pytest.mark.parametrize("run", [run for run in plan_runs(300) if run.fails], ids=lambda run: run.run_id)
def test_what_has_to_fail_fails_and_says_why(run: PlannedRun) -> None:
    with pytest.raises(ValueError, match=r"row \d+ of \d+, .+ \(\w+\): the (lat|long)itude|state"):
        survey_airports(Context(run.params))  # type: ignore[arg-type]


def test_the_others_do_not_fail() -> None:
    for run in plan_runs(300)[::10]:
        if not run.fails:
            survey_airports(Context(run.params))  # type: ignore[arg-type]


def test_a_run_reports_and_finds_the_loneliest_airport() -> None:
    context = Context(run_of("survey-AK-01").params)
    result = survey_airports(context)  # type: ignore[arg-type]
    assert context.reports == [f"{number} of 11 measured" for number in (3, 6, 9, 11)]
    assert context.lines[-1] == "loneliest: Adak (ADK), 171.1 km to Atka (AKA)"
    assert result.total_rows == 11
    assert result.value["loneliest"] == {"airport": "Adak (ADK)", "nearest": "Atka (AKA)", "km": 171.1}


def test_distances_are_those_of_the_globe() -> None:
    by_iata = {airport.iata: airport for airport in all_airports()}
    assert by_iata["JFK"].km_to(by_iata["LAX"]) == pytest.approx(3974, rel=0.005)
    assert by_iata["JFK"].km_to(by_iata["JFK"]) == 0


@pytest.mark.parametrize(
    ("state", "latitude", "longitude", "reason"),
    [
        ("TX", "41,98", -90, "'41,98' is not a number"),
        ("TX", True, -90, "True is not a number"),
        ("TX", 41, None, "None is not a number"),
        ("TX", 90.1, -90, "90.1 is not between -90 and 90"),
        ("TX", 41, float("nan"), "nan is not between -180 and 180"),
        ("GU", 13.4, -144.8, "wrong sign: Guam is east of Greenwich"),
    ],
)
def test_unusable_rows_are_refused_with_their_place(
    state: str, latitude: Any, longitude: Any, reason: str
) -> None:
    with pytest.raises(UnusableRowError, match=rf"row 2 of 7, Somewhere \(XYZ\): .*{reason}"):
        from_row(["XYZ", "Somewhere", latitude, longitude], state, 2, 7)


def test_without_the_data_set_it_says_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(airports, "distribution", missing)
    all_airports.cache_clear()
    with pytest.raises(UserError, match="vega_datasets") as caught:
        all_airports()
    assert "runlane[demo]" in str(caught.value.hint)
