"""A broker that goes away and comes back: clients say so, executors wait and lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams import topic_admin
from streams.broker import local_broker
from streams.client import RunlaneClient
from streams.client_errors import CommandTimeout
from streams.executor import Executor, RunContext
from streams.settings import Settings
from tests.worker_process import WorkerProcess

PATIENCE_S = 120


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a broker that the test may kill, topics applied."""
    place = Settings(brokers=None, broker_dir=tmp_path / "broker")
    address = local_broker.up(place).address
    settings = Settings(brokers=address, broker_dir=place.broker_dir, prefix="away")
    topic_admin.apply(settings)
    yield settings
    local_broker.remove(settings)


async def test_a_broker_that_is_away_is_named_and_then_everything_goes_on(
    own_broker: Settings, tmp_path: Path
) -> None:
    settings, app, lines = own_broker, Executor(), 30
    started, broker_gone = asyncio.Event(), asyncio.Event()

    @app.run("job")
    async def job(context: RunContext) -> int:
        await context.log("before")
        started.set()
        await broker_gone.wait()
        for number in range(lines):
            await context.log(f"away {number}")
        return lines

    worker = WorkerProcess(settings.brokers or "", settings.prefix, tmp_path / "worker")
    with worker.start().wait_ready():
        async with app.runner(settings), RunlaneClient(settings) as client:
            await client.submit("run-1", "job")
            await started.wait()
            following = client.events("run-1")
            seen = [await anext(following), await anext(following)]
            await asyncio.to_thread(local_broker.kill, settings)
            with pytest.raises(CommandTimeout, match="has not reached away-run-commands") as timed_out:
                await client.submit("run-2", "job", command_id="kept", timeout=1)
            assert not timed_out.value.delivered
            broker_gone.set()
            waiting = asyncio.create_task(client.wait_terminal("run-1", timeout=PATIENCE_S))
            await asyncio.to_thread(local_broker.up, settings)
            assert (await waiting).result == lines
            seen += [event async for event in following]
            again = await client.submit("run-2", "job", command_id="kept", timeout=30, attempts=4)
            assert again.status == "running"
            assert (await client.wait_terminal("run-2", timeout=PATIENCE_S)).result == lines
            twice = [event.type async for event in client.events("run-2")]
    said = [event.line for event in seen if event.type == "log"]
    assert said == ["before"] + [f"away {number}" for number in range(lines)]
    assert twice == ["status"] + ["log"] * (1 + lines) + ["terminal"]
