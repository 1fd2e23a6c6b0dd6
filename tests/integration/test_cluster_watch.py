"""A worker whose cluster changes under it says so, and ends when only a new process helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streams import topic_admin
from streams.broker import local_broker
from streams.settings import Settings
from tests.integration.lane_rig import Rig
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess


def problems(worker: WorkerProcess) -> str:
    status, body = worker.get("/health/ready")
    return "" if status in (0, 200) else " ".join(json.loads(body)["problems"])


def test_topics_made_anew_end_the_worker_and_the_next_one_serves_them(
    make_settings: Any, tmp_path: Path
) -> None:
    settings: Settings = make_settings(partitions=2)
    rig = Rig(settings)
    run_id = rig.run_id()
    with WorkerProcess(str(settings.brokers), settings.prefix, tmp_path, partitions=2) as worker:
        worker.start().wait_ready()
        rig.log(run_id, 3)
        wait_until(lambda: len(rig.events()) == 3, "the first commands are applied")
        topic_admin.delete(settings)
        wait_until(lambda: "run-commands is missing" in problems(worker), "the worker misses its topics")
        topic_admin.apply(settings)
        assert worker.exit_code(patience_s=60) == 75
        rig.sent.clear()
        worker.start().wait_ready()
        rig.log(run_id, 2)
        wait_until(lambda: len(rig.events()) == 2, "the new commands are applied")
    rig.assert_exactly_once()


def test_a_worker_waits_for_a_broker_that_is_away_and_says_so(tmp_path: Path) -> None:
    own = Settings(brokers=None, broker_dir=tmp_path / "broker", partitions=1)
    address = local_broker.up(own).address
    try:
        settings = own.model_copy(update={"brokers": address, "prefix": "away"})
        topic_admin.apply(settings)
        local_broker.kill(own)
        with WorkerProcess(address, "away", tmp_path / "worker", partitions=1) as worker:
            worker.start()
            wait_until(
                lambda: "waiting for Kafka" in worker.log_file.read_text(), "it says what it waits for"
            )
            assert worker.alive
            local_broker.up(own)
            worker.wait_ready()
            local_broker.kill(own)
            wait_until(lambda: "no broker answers" in problems(worker), "it is not ready without a broker")
            local_broker.up(own)
            worker.wait_ready()
            rig = Rig(settings)
            rig.log(rig.run_id(), 2)
            wait_until(lambda: len(rig.events()) == 2, "commands are applied again")
            rig.assert_exactly_once()
    finally:
        local_broker.remove(own)
