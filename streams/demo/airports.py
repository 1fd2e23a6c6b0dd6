"""The demo's input: the 3,376 airports of the package `vega_datasets`."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
from math import asin, cos, radians, sin, sqrt
from pathlib import Path
from typing import Any

from streams.user_errors import UserError

_FILE = "vega_datasets/_data/airports.csv"
_EARTH_DIAMETER_KM = 12_742.0

_HEMISPHERES = {
    "GU": {"longitude": (1, "Guam is east of Greenwich")},
    "CQ": {"longitude": (1, "the Northern Marianas are east of Greenwich")},
    "AS": {"latitude": (-1, "American Samoa is south of the equator")},
}
"""Territories that the data set puts on the wrong side of the earth: the right sign, and why."""

UNUSABLE_STATES = frozenset({*_HEMISPHERES, "NA"})
"""What the data set itself gets wrong: signs, and 12 airports without a state."""


@dataclass(frozen=True)
class Airport:
    """One airport with coordinates in degrees; `state` is its two letters, `NA` where the data has none."""

    iata: str
    name: str
    state: str
    latitude: float
    longitude: float

    @property
    def unit_vector(self) -> tuple[float, float, float]:
        """Its direction from the earth's centre."""
        latitude, longitude = radians(self.latitude), radians(self.longitude)
        return cos(latitude) * cos(longitude), cos(latitude) * sin(longitude), sin(latitude)

    def km_to(self, other: Airport) -> float:
        """Great-circle distance."""
        north = sin(radians(other.latitude - self.latitude) / 2) ** 2
        east = sin(radians(other.longitude - self.longitude) / 2) ** 2
        across = cos(radians(self.latitude)) * cos(radians(other.latitude)) * east
        return _EARTH_DIAMETER_KM * asin(sqrt(min(1.0, north + across)))

    def __str__(self) -> str:
        return f"{self.name} ({self.iata})"


class UnusableRowError(ValueError):
    """A row that is no airport; the message says which row, and what is wrong with it."""


@lru_cache(maxsize=1)
def all_airports() -> tuple[Airport, ...]:
    """Every airport of the data set. Raises `UserError` when the package is not installed."""
    # Found by its metadata: importing the package would import pandas.
    try:
        file = Path(str(distribution("vega_datasets").locate_file(_FILE)))
    except PackageNotFoundError:
        raise UserError(
            "The demo's data set, the package vega_datasets, is not installed.",
            "install it with the extra `demo`: pip install 'runlane[demo]' (in a clone: pip install -e '.[demo]')",
        ) from None
    with file.open(encoding="utf-8", newline="") as lines:
        return tuple(
            Airport(row["iata"], row["name"], row["state"], float(row["latitude"]), float(row["longitude"]))
            for row in csv.DictReader(lines)
        )


def as_row(airport: Airport) -> list[Any]:
    """An airport as it is sent in a run's parameters."""
    return [airport.iata, airport.name, airport.latitude, airport.longitude]


def from_row(row: list[Any], state: str, number: int, total: int) -> Airport:
    """The airport of a row that was sent; raises `UnusableRowError`."""
    iata, name, latitude, longitude = row
    for what, value, limit in (("latitude", latitude, 90), ("longitude", longitude, 180)):
        where = f"row {number} of {total}, {name} ({iata}): the {what} {value!r}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UnusableRowError(f"{where} is not a number")
        if not -limit <= value <= limit:
            raise UnusableRowError(f"{where} is not between -{limit} and {limit}")
        right_sign, side = _HEMISPHERES.get(state, {}).get(what, (0, ""))
        if value * right_sign < 0:
            raise UnusableRowError(f"{where} has the wrong sign: {side}")
    return Airport(iata, name, state, latitude, longitude)
