"""A second worker joins and leaves, again and again, under load."""

from __future__ import annotations

from tests.crash.conftest import StartTrial

ROUNDS = 10


def test_a_second_worker_joins_and_leaves_ten_times_under_load(start_trial: StartTrial) -> None:
    trial = start_trial(per_second=300, seed=3)
    trial.worker().start().wait_ready()
    trial.load.start()
    second = trial.worker()
    for _ in range(ROUNDS):
        second.start().wait_ready()
        trial.wait_for_progress()
        assert second.terminate() == 0
        trial.wait_for_progress()
    trial.finish()
