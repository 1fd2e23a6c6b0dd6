"""A worker is frozen past its session's time-out and wakes up while another one owns its partitions."""

from __future__ import annotations

import json

from tests.crash.conftest import PARTITIONS, StartTrial
from tests.worker_process import WorkerProcess

ROUNDS = 2


def lanes(worker: WorkerProcess) -> int:
    """How many lanes the worker owns and serves; 0 when it is not ready."""
    status, body = worker.get("/health/ready")
    return len(json.loads(body)["lanes"]) if status == 200 else 0


def test_sigstop_past_the_session_time_out_and_sigcont_while_the_new_owner_works(
    start_trial: StartTrial,
) -> None:
    trial = start_trial(per_second=300, seed=2)
    first, second = trial.worker().start(), trial.worker().start()
    trial.load.start()
    trial.wait_for_progress()
    for _ in range(ROUNDS):
        for frozen, owner in ((first, second), (second, first)):
            trial.wait_for(lambda: lanes(first) + lanes(second) == PARTITIONS, "both serve")
            trial.wait_for(lambda frozen=frozen: lanes(frozen) > 0, "it owns a lane")
            trial.wait_for_progress()
            frozen.freeze()
            trial.wait_for(lambda owner=owner: lanes(owner) == PARTITIONS, "the other owns all lanes")
            trial.wait_for_progress()
            frozen.thaw()
            trial.wait_for_progress()
    trial.finish()
