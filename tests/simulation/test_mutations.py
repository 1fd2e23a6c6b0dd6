"""The simulation finds deliberate faults of the lane, so that it would find one that nobody meant."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from tests.simulation.mutations.registry import all_mutations
from tests.simulation.schedules import processes, run_many

WITHIN_SCHEDULES = 2000


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    """Processes for all tests of this module."""
    with processes() as pool:
        yield pool


@pytest.mark.parametrize("name", all_mutations())
def test_a_mutation_is_found(name: str, pool: ProcessPoolExecutor) -> None:
    summary = run_many(pool, 0, WITHIN_SCHEDULES, mutation=name, stop_at_first=True)
    assert summary.failures, (
        f"{name}: {all_mutations()[name].__doc__} Not found in {summary.schedules} schedules"
    )
