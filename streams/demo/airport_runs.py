"""The demo's executor: each run measures how far some airports are from their nearest neighbours.

Started as `runlane executor streams.demo.airport_runs:app`.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

from streams.demo.airports import Airport, all_airports, from_row
from streams.executor import Executor, Result, SyncRunContext

SURVEY = "survey-airports"
"""The name under which runs are submitted."""

_REPORTS = 4

app = Executor()


class UnknownStateError(ValueError):
    """The run asks for a state in which the data set has no airport."""


@app.run(SURVEY)
def survey_airports(context: SyncRunContext) -> Result:
    """Find, for each airport of the run, the nearest one of all; say which is the loneliest.

    Parameters: `{"state", "part", "parts", "airports": [[iata, name, latitude, longitude], ...]}`.
    """
    state, sent = context.params["state"], context.params["airports"]
    everywhere = all_airports()
    if state == "NA":
        raise UnknownStateError(f"{len(sent)} airports of the data set name no state (NA)")
    if all(airport.state != state for airport in everywhere):
        raise UnknownStateError(f"the data set has no airport in a state {state!r}")
    context.log(f"{_title(context.params)}: {len(sent)} airports against {len(everywhere):,}")
    airports: list[Airport] = []
    neighbours: list[Airport] = []
    for number, row in enumerate(sent, 1):
        airport = from_row(row, state, number, len(sent))
        airports.append(airport)
        neighbours.append(_nearest(airport))
        if number * _REPORTS // len(sent) > (number - 1) * _REPORTS // len(sent):
            context.progress(f"{number} of {len(sent)} measured", active_node_id=airport.iata)
    result = _summary(context.params, airports, neighbours)
    loneliest = result["loneliest"]
    context.log(f"loneliest: {loneliest['airport']}, {loneliest['km']:,} km to {loneliest['nearest']}")
    return Result(result, total_rows=len(airports))


@lru_cache(maxsize=1)
def _unit_vectors() -> list[tuple[str, tuple[float, float, float]]]:
    return [(airport.iata, airport.unit_vector) for airport in all_airports()]


def _nearest(airport: Airport) -> Airport:
    x, y, z = airport.unit_vector
    # The nearest has the largest scalar product; comparing those is far cheaper than distances.
    nearness = [
        x * a + y * b + z * c if iata != airport.iata else -1.0 for iata, (a, b, c) in _unit_vectors()
    ]
    return all_airports()[nearness.index(max(nearness))]


def _summary(params: dict[str, Any], airports: list[Airport], neighbours: list[Airport]) -> dict[str, Any]:
    distances = [airport.km_to(other) for airport, other in zip(airports, neighbours, strict=True)]
    loneliest = max(range(len(airports)), key=distances.__getitem__)
    hops = [(left.km_to(right), left, right) for left, right in pairwise(airports)]
    longest = max(hops, key=lambda hop: hop[0], default=None)
    return {
        "of": _title(params),
        "airports": len(airports),
        "centre": {
            "latitude": round(sum(airport.latitude for airport in airports) / len(airports), 3),
            "longitude": round(sum(airport.longitude for airport in airports) / len(airports), 3),
        },
        "meanKmToNearest": round(sum(distances) / len(distances), 1),
        "loneliest": {
            "airport": str(airports[loneliest]),
            "nearest": str(neighbours[loneliest]),
            "km": round(distances[loneliest], 1),
        },
        "longestHop": longest
        and {"from": str(longest[1]), "to": str(longest[2]), "km": round(longest[0], 1)},
    }


def _title(params: dict[str, Any]) -> str:
    part = f" ({params['part']} of {params['parts']})" if params["parts"] > 1 else ""
    return f"{params['state']}{part}"
