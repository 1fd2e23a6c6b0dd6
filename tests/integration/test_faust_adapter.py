"""The overrides of Faust and aiokafka that are not plain from the outside."""

from __future__ import annotations

import asyncio
import importlib.metadata
import random
from pathlib import Path
from typing import Any

import pytest

from streams import faust_adapter
from streams.child_process import free_port
from streams.faust_adapter import LaneApp
from streams.settings import Settings
from streams.torture.proxy import Link, LinkFault
from streams.user_errors import UserError
from tests.integration.lane_rig import Rig
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess


def test_other_versions_than_the_overrides_were_written_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faust_adapter.check_versions()
    version = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.14.1" if name == "aiokafka" else version(name)
    )
    with pytest.raises(UserError, match=r"aiokafka 0\.14\.1, not 0\.14\.0"):
        faust_adapter.check_versions()


def test_a_restarted_worker_takes_its_dead_predecessor_out_of_the_group(
    make_settings: Any, tmp_path: Path
) -> None:
    """With and without its disk. The broker would wait 80 s for the dead member; nobody here waits so long."""
    settings: Settings = make_settings(partitions=2)
    rig = Rig(settings)
    run_id = rig.run_id()
    worker = WorkerProcess(
        str(settings.brokers),
        settings.prefix,
        tmp_path,
        partitions=2,
        settings={"RUNLANE_SESSION_TIMEOUT_MS": "80000", "RUNLANE_HEARTBEAT_INTERVAL_MS": "1000"},
    )
    with worker:
        worker.start().wait_ready()
        rig.log(run_id)
        wait_until(lambda: len(rig.events()) == 1, "the first command is applied")
        for number in range(2):
            worker.kill()
            if number == 1:
                worker.lose_disk()
            rig.log(run_id)
            worker.start().wait_ready(patience_s=70)
            wait_until(lambda seen=number + 2: len(rig.events()) == seen, "the next command is applied")
    rig.assert_exactly_once()


async def test_a_worker_that_starts_waits_for_a_broker_that_has_just_gone(
    make_settings: Any, tmp_path: Path
) -> None:
    """It was there a moment before, when the worker looked at the topics."""
    settings: Settings = make_settings(partitions=2)
    _, port = str(settings.brokers).split(":")
    link = Link(free_port(), int(port), random.Random(1))
    await link.start()
    app = LaneApp(
        settings.name("lanes"),
        short_names={settings.name("run-commands"): "run-commands"},
        fetch_wait_ms=100,
        shutdown_deadline_s=10,
        predecessors=(),
        on_closed=lambda: None,
        broker=f"kafka://{link.address}",
        datadir=str(tmp_path),
    )
    link.impose(LinkFault.CUT)
    loop = asyncio.get_running_loop()
    clients = [app.producer._new_producer(), app.consumer._thread._create_consumer(loop)]
    starting = asyncio.gather(*(client.start() for client in clients))
    try:
        await asyncio.wait([starting], timeout=1.0)
        assert not starting.done()
        link.heal()
        await starting
    finally:
        link.heal()
        for client in clients:
            await client.stop()
        await link.close()
