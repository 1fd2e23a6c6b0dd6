"""Waits are attributed to the faults that are in progress, until everything flows again."""

from __future__ import annotations

from streams.torture.pauses import Pauses, summarize
from streams.torture.schedule import FaultKind, PlannedFault


def fault(number: int, kind: FaultKind = FaultKind.WORKER_KILLED, target: str = "worker-1") -> PlannedFault:
    """Some fault."""
    return PlannedFault(number, kind, target, 0.0, 0.0, False)


def test_a_window_closes_when_all_partitions_have_shown_what_was_sent_after_the_harm() -> None:
    pauses = Pauses(2)
    window = pauses.begin(fault(1), 10.0)
    pauses.command_done(0, 9.0, 10.5)
    pauses.undone(window, 11.0)
    pauses.command_done(0, 11.5, 12.0)
    pauses.command_done(0, 11.6, 12.1)
    pauses.command_done(1, 10.9, 14.0)
    assert pauses.in_progress == [window]
    pauses.command_done(1, 13.0, 14.1)
    assert pauses.in_progress == []
    assert window.closed_at == 14.1
    assert round(window.longest_wait_s, 3) == 3.1
    pauses.command_done(1, 0.0, 100.0)
    assert round(window.longest_wait_s, 3) == 3.1
    assert pauses.longest_wait_s == 100.0


def test_nothing_that_was_done_before_the_harm_was_over_closes_a_window() -> None:
    pauses = Pauses(1)
    window = pauses.begin(fault(1), 10.0)
    pauses.command_done(0, 10.5, 10.6)
    pauses.undone(window, 11.0)
    assert pauses.in_progress == [window]
    pauses.command_done(0, 10.9, 11.5)
    assert pauses.in_progress == [window]


def test_faults_that_are_in_progress_together_say_so() -> None:
    pauses = Pauses(1)
    first = pauses.begin(fault(1), 1.0)
    second = pauses.begin(fault(2, FaultKind.BROKER_KILLED, "broker"), 2.0)
    for window in (first, second):
        pauses.undone(window, 3.0)
    pauses.command_done(0, 4.0, 5.0)
    third = pauses.begin(fault(3), 6.0)
    assert (first.overlaps, second.overlaps, third.overlaps) == (True, True, False)


def test_a_harmed_executor_holds_up_runs_and_no_other_commands() -> None:
    pauses = Pauses(1)
    window = pauses.begin(fault(1, FaultKind.EXECUTOR_KILLED, "executor-1"), 1.0)
    pauses.undone(window, 2.0)
    pauses.command_done(0, 2.5, 9.0)
    assert window.longest_wait_s == 0.0
    pauses.run_went_on(0, 1.5, 8.0, dispatched_at=1.2)
    assert window.closed_at is None
    pauses.run_went_on(0, 8.5, 9.0, dispatched_at=8.4)
    assert window.closed_at == 9.0
    assert window.longest_wait_s == 6.5


def test_the_summary_keeps_what_is_one_faults_doing_apart() -> None:
    pauses = Pauses(1)
    at = 0.0
    for wait in (1.0, 2.0, 6.0):
        window = pauses.begin(fault(1), at)
        pauses.undone(window, at + 1)
        pauses.command_done(0, at + 2, at + 2 + wait)
        at += 20
    for kind, target in ((FaultKind.WORKER_KILLED, "worker-1"), (FaultKind.BROKER_KILLED, "broker")):
        pauses.begin(fault(2, kind, target), at)
    pauses.command_done(0, at, at + 9)
    killed, broker = summarize(pauses.windows)
    assert (killed.kind, killed.count, killed.alone) == (FaultKind.WORKER_KILLED, 4, 3)
    assert (killed.median_s, killed.longest_s, killed.longest_overlapping_s) == (2.0, 6.0, 9.0)
    assert (broker.kind, broker.alone, broker.median_s, broker.longest_s) == (
        FaultKind.BROKER_KILLED,
        0,
        None,
        None,
    )
