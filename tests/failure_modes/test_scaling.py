"""Duplicates, or gaps, when the workers of a group become more and fewer again.

Elsewhere: a partition changes hands while its old owner still has work in flight.
`tests/crash/test_torture.py` has one worker come and go many times.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.crash.conftest import StartTrial
from tests.worker_process import WorkerProcess


def test_one_worker_becomes_three_and_one_again_under_load(start_trial: StartTrial) -> None:
    trial = start_trial(per_second=300, seed=6)
    trial.worker().start().wait_ready()
    trial.load.start()
    others = [trial.worker().start(), trial.worker().start()]
    for worker in others:
        worker.wait_ready()
    trial.wait_for_progress()
    with ThreadPoolExecutor(len(others)) as pool:
        assert list(pool.map(WorkerProcess.terminate, others)) == [0, 0]
    trial.wait_for_progress()
    trial.finish()
