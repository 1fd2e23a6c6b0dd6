"""A worker is killed by SIGKILL under load, at random moments, with and without its disk."""

from __future__ import annotations

import random
import time

from tests.crash.conftest import StartTrial

KILLS = 20
SEED = 20


def test_kill_9_of_a_worker_under_load_at_random_moments(start_trial: StartTrial) -> None:
    trial = start_trial(per_second=300, seed=SEED)
    moments = random.Random(SEED)
    worker = trial.worker().start().wait_ready()
    trial.load.start()
    for kill in range(KILLS):
        if kill % 4 == 3:
            # While it starts, joins, restores or has just begun to serve.
            time.sleep(moments.uniform(0.2, 3.0))
        else:
            trial.wait_for_progress()
            time.sleep(moments.uniform(0.0, 0.5))
        worker.kill()
        if kill % 6 == 1:
            worker.lose_disk()
        elif kill % 2:
            worker.lose_state()
        worker.start()
    trial.wait_for_progress()
    trial.finish()
    assert worker.terminate() == 0
