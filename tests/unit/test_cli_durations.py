"""Durations as the command line prints them."""

from __future__ import annotations

import pytest

from streams.cli.output import time_left


@pytest.mark.parametrize(
    ("milliseconds", "told"),
    [
        (0, "0.0 s"),
        (59_999, "59.9 s"),
        (60_000, "1 min"),
        (3_595_260, "59 min 55 s"),
        (3_600_000 + 59_000, "1 h"),
        (366 * 86_400_000 - 1, "365 d 23 h"),
    ],
)
def test_time_that_is_left_is_told_in_two_units(milliseconds: int, told: str) -> None:
    assert time_left(milliseconds) == told
