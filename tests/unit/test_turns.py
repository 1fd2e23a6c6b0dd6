"""What lanes compute, one piece at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from streams.lane_factory import Turns

_PIECES = 200


def test_brief_and_long_pieces_are_never_done_at_once() -> None:
    turns = Turns()
    inside: list[int] = []
    together: list[list[int]] = []

    def piece(number: int) -> int:
        inside.append(number)
        time.sleep(0)
        if len(inside) > 1:
            together.append(list(inside))
        inside.remove(number)
        return number

    with ThreadPoolExecutor(8) as lanes:
        done = list(
            lanes.map(lambda n: turns(lambda: piece(n), is_brief=n % 3 > 0), range(_PIECES)),
        )
    assert done == list(range(_PIECES))
    assert not together


@pytest.mark.parametrize("is_brief", [True, False])
def test_work_that_fails_gives_its_turn_back(is_brief: bool) -> None:
    turns = Turns()
    with pytest.raises(ZeroDivisionError):
        turns(lambda: 1 // 0, is_brief=is_brief)
    assert turns(lambda: "next", is_brief=not is_brief) == "next"
