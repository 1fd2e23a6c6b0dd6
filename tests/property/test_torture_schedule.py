"""The schedule of a torture: the same for the same seed, and with everything in it that has to be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.torture.schedule import (
    BROKER,
    SESSION_S,
    VISITOR,
    FaultKind,
    PlannedFault,
    executor_names,
    meaning,
    plan,
    worker_names,
)

SITE: dict[str, Any] = {"workers": 2, "executors": 2, "pace_s": 2.5}

seeds = st.integers(0, 2**31)


@given(seeds, st.integers(1, 500))
def test_the_same_seed_gives_the_same_faults(seed: int, faults: int) -> None:
    planned = plan(seed, faults, **SITE)
    assert planned == plan(seed, faults, **SITE)
    assert [fault.number for fault in planned] == list(range(1, faults + 1))


def test_other_seeds_give_other_faults() -> None:
    first, second = plan(1, 60, **SITE), plan(2, 60, **SITE)
    assert [fault.kind for fault in first] != [fault.kind for fault in second]
    assert [fault.after_s for fault in first] != [fault.after_s for fault in second]
    assert Counter(fault.kind for fault in first) == Counter(fault.kind for fault in second)


@given(seeds)
def test_sixty_faults_are_what_the_short_form_promises(seed: int) -> None:
    planned = plan(seed, 60, **SITE)
    counts = Counter(fault.kind for fault in planned)
    killed = [kind for kind in FaultKind if kind.startswith("worker-killed")]
    assert sum(counts[kind] for kind in killed) == 20
    assert counts[FaultKind.WORKER_KILLED_STATE_LOST] + counts[FaultKind.WORKER_KILLED_DISK_LOST] == 8
    assert counts[FaultKind.WORKER_FROZEN] == 4
    assert counts[FaultKind.WORKER_VISITS] == 10
    assert counts[FaultKind.BROKER_KILLED] == 3
    assert set(counts) == set(FaultKind)
    for kind in killed:
        assert len({fault.alone for fault in planned if fault.kind is kind}) == 2


@given(seeds, st.floats(0, 1), st.integers(60, 500))
def test_fewer_come_alone_when_there_is_less_time_for_it(seed: int, share: float, faults: int) -> None:
    planned, full = plan(seed, faults, alone=share, **SITE), plan(seed, faults, **SITE)
    assert Counter(fault.kind for fault in planned) == Counter(fault.kind for fault in full)
    alone = {fault.kind for fault in planned if fault.alone}
    assert {FaultKind.WORKER_FROZEN, FaultKind.WORKER_VISITS, FaultKind.BROKER_KILLED} <= alone
    assert sum(fault.alone for fault in planned) <= max(3, sum(fault.alone for fault in full))


def is_possible(fault: PlannedFault, workers: list[str], executors: list[str]) -> bool:
    """Whether its target is one for its kind."""
    if fault.kind.startswith("broker"):
        return fault.target == BROKER
    if fault.kind is FaultKind.WORKER_VISITS:
        return fault.target == VISITOR
    if fault.kind is FaultKind.EXECUTOR_KILLED:
        return fault.target in executors
    return fault.target in (workers + executors if fault.kind.startswith("link") else workers)


@given(seeds, st.integers(1, 200), st.integers(1, 4), st.integers(0, 3), st.floats(0.5, 20))
def test_every_fault_can_be_carried_out(
    seed: int, faults: int, workers: int, executors: int, pace_s: float
) -> None:
    planned = plan(seed, faults, workers=workers, executors=executors, pace_s=pace_s)
    assert len(planned) == faults
    for fault in planned:
        assert is_possible(fault, worker_names(workers), executor_names(executors)), fault
        assert fault.after_s >= 0
        assert fault.lasts_s >= 0
        assert (fault.delay_s > 0) is (fault.kind in (FaultKind.LINK_SLOW, FaultKind.LINK_LATE))
        if fault.kind is FaultKind.WORKER_FROZEN:
            assert fault.lasts_s > SESSION_S


@given(seeds, st.integers(1, 100), st.sets(st.sampled_from(list(FaultKind)), min_size=1))
def test_only_the_kinds_that_were_asked_for_come(seed: int, faults: int, kinds: set[FaultKind]) -> None:
    planned = plan(seed, faults, **SITE, kinds=tuple(kinds))
    assert len(planned) == faults
    assert {fault.kind for fault in planned} <= kinds


def test_without_executors_none_is_killed() -> None:
    kinds = {fault.kind for fault in plan(1, 200, workers=1, executors=0, pace_s=1)}
    assert kinds == set(FaultKind) - {FaultKind.EXECUTOR_KILLED}
    with pytest.raises(ValueError, match="nothing"):
        plan(1, 5, workers=1, executors=0, pace_s=1, kinds=(FaultKind.EXECUTOR_KILLED,))


def test_every_kind_says_what_it_does() -> None:
    texts = [meaning(kind) for kind in FaultKind]
    assert len(set(texts)) == len(texts)
