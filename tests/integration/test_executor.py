"""The executor kit with a real worker on a real broker: what functions do, and that it happens once."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pydantic import BaseModel

from schemas.dispatches import Dispatch
from schemas.terminals import TerminalState
from streams.client import RunlaneClient
from streams.execution.command_ids import CommandIds
from streams.executor import Executor, Result, RunContext, RunStopped, SyncRunContext
from streams.partitioner import partition_for
from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from tests.integration.executor_process import ExecutorProcess
from tests.serving import served
from tests.waiting import wait_until

PATIENCE_S = 60


@pytest.fixture(scope="module")
def settings(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics with a worker, for all tests of this module; each test uses a consumer group of its own."""
    prefix = f"x{uuid.uuid4().hex[:10]}"
    settings = Settings(brokers=broker, prefix=prefix, command_timeout_s=PATIENCE_S, session_timeout_ms=6000)
    with served(settings, tmp_path_factory.mktemp("worker")):
        yield settings


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[RunlaneClient]:
    async with RunlaneClient(settings) as opened:
        yield opened


@pytest.fixture
def app() -> Executor:
    # The module's runs of other tests are in the topic too.
    return Executor(ignore_unknown=True)


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4().hex[:8]}"


def new_name() -> str:
    """A run name or run id that no other test uses."""
    return f"n{uuid.uuid4().hex[:10]}"


async def end_of(client: RunlaneClient, run_id: str) -> TerminalState:
    return await client.wait_terminal(run_id, timeout=PATIENCE_S)


async def events_of(client: RunlaneClient, run_id: str) -> list[Any]:
    """All events of an ended run; that their `seq` is dense is checked by the client."""
    return [event async for event in client.events(run_id)]


def committed(settings: Settings, group: str, partition: int) -> int:
    consumer = Consumer({"bootstrap.servers": settings.brokers, "group.id": settings.name(group)})
    (place,) = consumer.committed([TopicPartition(settings.name("run-dispatch"), partition)], 20)
    consumer.close()
    return int(place.offset)


def dispatch_offset(settings: Settings, run_id: str) -> int:
    partition = partition_for(run_id.encode(), settings.partitions)
    consumer = Consumer({"bootstrap.servers": settings.brokers, "group.id": "offsets"})
    consumer.assign([TopicPartition(settings.name("run-dispatch"), partition, 0)])
    while (message := consumer.poll(20)) is not None:
        if message.key() == run_id.encode():
            consumer.close()
            return int(message.offset())
    raise AssertionError(f"there is no dispatch of {run_id}")


def latest_seq(settings: Settings, run_id: str) -> int:
    with RunlaneSyncClient(settings) as client:
        return client.status(run_id).latest_seq


# What a function says and returns


class Count(BaseModel):
    rows: int


class Holder(BaseModel):
    item: Any


async def test_an_async_function_reports_in_order_and_its_result_ends_the_run(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, run_id = new_name(), f"Ä/{new_name()}"

    @app.run(name)
    async def function(context: RunContext) -> Result:
        assert (context.run_id, context.name, context.attempt) == (run_id, name, 1)
        await context.log("one")
        await context.progress("half", logs=["x"], active_node_id="node")
        await context.set_status("almost")
        return Result({"sum": sum(context.params)}, total_rows=3)

    async with app.runner(settings, group=group):
        submitted = await client.submit(run_id, name, [1, 2, 3])
        end = await end_of(client, run_id)
    assert (end.status, end.result, end.total_rows, end.play_name) == ("completed", {"sum": 6}, 3, name)
    assert isinstance(end.duration_ms, int)
    events = await events_of(client, run_id)
    assert [event.type for event in events] == ["status", "log", "progress", "status", "terminal"]
    assert (events[1].line, events[2].active_node_id, events[3].status) == ("one", "node", "almost")
    fields = {"name": name, "dispatchedAt": 0, "commandId": "", "attempt": 1}
    ids = CommandIds(Dispatch(runId=run_id, instanceId=submitted.instance_id, **fields))
    assert [event.command_id for event in events[1:4]] == [ids.event(1), ids.event(2), ids.event(3)]


async def test_a_plain_function_does_the_same_in_a_thread(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, run_id = new_name(), new_name()

    @app.run(name)
    def function(context: SyncRunContext) -> Count:
        assert threading.current_thread() is not threading.main_thread()
        for number in range(50):
            context.log(str(number))
        context.progress("done")
        context.total_rows = 50
        return Count(rows=50)

    async with app.runner(settings, group=group):
        await client.submit(run_id, name)
        end = await end_of(client, run_id)
    assert (end.status, end.result, end.total_rows) == ("completed", {"rows": 50}, 50)
    events = await events_of(client, run_id)
    assert [event.line for event in events if event.type == "log"] == [str(n) for n in range(50)]


async def test_an_exception_fails_the_run_with_name_message_and_twelve_lines_of_stack(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, plain_name = new_name(), new_name()

    # Two functions in turn: a stack of one frame over and over is told in few lines.
    def descend(depth: int) -> None:
        descend_further(depth)

    def descend_further(depth: int) -> None:
        if not depth:
            raise ValueError("no such column \udcff")
        descend(depth - 1)

    @app.run(name)
    async def function(context: RunContext) -> None:
        await context.log("before")
        descend(20)

    @app.run(plain_name)
    def plain(context: SyncRunContext) -> None:
        raise SystemExit("gone")

    async with app.runner(settings, group=group):
        await client.submit("failing-" + name, name)
        await client.submit("failing-" + plain_name, plain_name)
        end = await end_of(client, "failing-" + name)
        plain_end = await end_of(client, "failing-" + plain_name)
    assert (end.status, end.result, end.play_name) == ("failed", None, name)
    first, *stack = (end.error or "").splitlines()
    assert first == "ValueError: no such column \\udcff"
    assert len(stack) == 12
    assert 'raise ValueError("no such column' in stack[-2] + stack[-1]
    first, *stack = (plain_end.error or "").splitlines()
    assert first == "SystemExit: gone"
    assert "test_executor.py" in stack[0]
    assert "streams/execution" not in "".join(stack)


async def test_results_that_cannot_be_stored_fail_the_run_and_say_why(
    settings: Settings, client: RunlaneClient, app: Executor, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    nested: Any = []
    for _ in range(70):
        nested = [nested]
    results = {
        "object": object(),
        "large": "x" * 2_000_000,
        "nested": nested,
        "nan": [{"a": None}, float("nan")],
        "date": datetime.now(UTC),
        "model": Holder(item=object()),
    }
    name = new_name()

    @app.run(name)
    async def function(context: RunContext) -> Any:
        return results[context.params]

    caplog.set_level("INFO", "runlane.executor")
    async with app.runner(settings, group=group):
        for kind in results:
            await client.submit(f"{name}-{kind}", name, kind)
        ends = {kind: await end_of(client, f"{name}-{kind}") for kind in results}
    assert {end.status for end in ends.values()} == {"failed"}
    assert "the result was refused: it is no JSON" in (ends["object"].error or "")
    assert "the result was refused: COMMAND_TOO_LARGE" in (ends["large"].error or "")
    assert "the result was refused: INVALID_JSON" in (ends["nested"].error or "")
    assert "it is no JSON: JSON has no number nan" in (ends["nan"].error or "")
    assert "it is no JSON: Type is not JSON serializable: datetime" in (ends["date"].error or "")
    assert "PydanticSerializationError" in (ends["model"].error or "")
    assert "completed" not in caplog.text
    assert f"{name}-nan: failed, the result was refused" in caplog.text


async def test_an_unknown_name_fails_the_run_naming_the_known_ones_unless_told_to_ignore_it(
    settings: Settings, client: RunlaneClient, group: str
) -> None:
    name, other = new_name(), new_name()
    knowing, ignorant = Executor(ignore_unknown=True), Executor()

    @knowing.run(name)
    async def function(context: RunContext) -> str:
        return "known"

    @ignorant.run(other)
    async def other_function(context: RunContext) -> str:
        return "other"

    async with knowing.runner(settings, group=group):
        await client.submit(f"{name}-1", name)
        assert (await end_of(client, f"{name}-1")).result == "known"
        await client.submit(f"{name}-2", new_name())
        async with ignorant.runner(settings, group=new_name()):
            end = await end_of(client, f"{name}-2")
    assert end.status == "failed"
    assert f"it has: {other}" in (end.error or "")


def test_a_function_is_registered_once_and_must_take_the_context(app: Executor) -> None:
    app.run("a")(lambda context: None)
    with pytest.raises(ValueError, match="'a' has a function already"):
        app.run("a")(lambda context: None)
    with pytest.raises(TypeError, match="one argument"):
        app.run("b")(lambda: None)
    assert app.names == ["a"]


# How many at once, and what is committed


async def test_as_many_runs_as_allowed_at_once_and_one_that_takes_long_holds_back_only_the_commit(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, active, most = new_name(), 0, 0
    full, gate = asyncio.Event(), asyncio.Event()
    runs = [f"{name}-{n}" for n in range(200) if partition_for(f"{name}-{n}".encode(), 4) == 0][:12]

    @app.run(name)
    async def function(context: RunContext) -> None:
        nonlocal active, most
        active += 1
        most = max(most, active)
        if active == 3:
            full.set()
        await full.wait()
        if context.run_id == runs[0]:
            await gate.wait()
        active -= 1

    for run_id in runs:
        await client.submit(run_id, name)
    async with app.runner(settings, group=group, concurrency=3):
        for run_id in runs[1:]:
            assert (await end_of(client, run_id)).status == "completed"
        assert await client.get_terminal(runs[0]) is None
        held = await asyncio.to_thread(committed, settings, group, 0)
        gate.set()
        await end_of(client, runs[0])
    assert most == 3
    offset = await asyncio.to_thread(dispatch_offset, settings, runs[0])
    assert held <= offset
    assert await asyncio.to_thread(committed, settings, group, 0) > offset


# Once, whatever happens


async def test_two_groups_executing_the_same_dispatch_at_once_have_its_effects_once(
    settings: Settings, client: RunlaneClient, app: Executor
) -> None:
    name, run_id, calls = new_name(), new_name(), 0
    both = asyncio.Event()

    @app.run(name)
    async def function(context: RunContext) -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            both.set()
        await both.wait()
        for number in range(100):
            await context.log(str(number))
        return "once"

    async with app.runner(settings, group=new_name()), app.runner(settings, group=new_name()):
        await client.submit(run_id, name)
        assert (await end_of(client, run_id)).result == "once"
    assert calls == 2
    events = await events_of(client, run_id)
    assert [event.line for event in events if event.type == "log"] == [str(n) for n in range(100)]
    async with app.runner(settings, group=new_name()):
        marker = new_name()
        await client.submit(marker, name)
        await end_of(client, marker)
    # The third group met the dispatch after the run's end, so it did not call the function for it.
    assert calls == 3


async def test_a_run_goes_on_without_repeating_itself_when_its_executor_is_killed(
    settings: Settings, client: RunlaneClient, group: str, tmp_path: Path
) -> None:
    # More lines than the command ids that the coordinator remembers of a run.
    lines, run_id, arrived = 1500, new_name(), tmp_path / "arrived"
    params = {"lines": lines, "gate": str(tmp_path / "gate"), "arrived": str(arrived)}
    with ExecutorProcess(settings, group, tmp_path / "log") as first:
        await client.submit(run_id, "lines", params)
        await asyncio.to_thread(wait_until, arrived.exists, "the first executor's last line", PATIENCE_S)
        await asyncio.to_thread(
            wait_until,
            lambda: latest_seq(settings, run_id) == 1 + lines,
            "its lines to be applied",
            PATIENCE_S,
        )
        first.kill()
    with ExecutorProcess(settings, group, tmp_path / "log"):
        await asyncio.to_thread(
            wait_until, lambda: arrived.read_text().count(run_id) == 2, "the second executor", PATIENCE_S
        )
        (tmp_path / "gate").touch()
        assert (await end_of(client, run_id)).result == {"lines": lines}
    events = await events_of(client, run_id)
    said = [event.line for event in events if event.type == "log"]
    assert said == [f"line {number}" for number in range(lines)] + ["through the gate"]


async def test_partitions_that_go_while_the_executor_is_full_and_come_back_are_read_again(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, other_name = new_name(), new_name()
    full, room, visitor_came = asyncio.Event(), asyncio.Event(), asyncio.Event()
    visitor = Executor(ignore_unknown=True)

    @app.run(name)
    async def hold(context: RunContext) -> str:
        if context.params == "hold":
            full.set()
            await room.wait()
        return context.run_id

    @visitor.run(other_name)
    @app.run(other_name)
    async def note(context: RunContext) -> str:
        visitor_came.set()
        return context.run_id

    async with app.runner(settings, group=group, concurrency=1):
        held = f"{name}-held"
        await client.submit(held, name, "hold")
        await asyncio.wait_for(full.wait(), PATIENCE_S)
        second = await visitor.runner(settings, group=group, concurrency=4).start()
        sent = 0
        async with asyncio.timeout(PATIENCE_S):
            while not visitor_came.is_set():
                await client.submit(f"{other_name}-{sent}", other_name)
                sent += 1
                await asyncio.sleep(0.05)
        room.set()
        await end_of(client, held)
        await second.stop(5.0)
        everywhere = [f"{name}-{number}" for number in range(24)]
        for run_id in everywhere:
            await client.submit(run_id, name)
        ends = await asyncio.gather(*(end_of(client, run_id) for run_id in everywhere))
        assert [end.result for end in ends] == everywhere
        assert {partition_for(run_id.encode(), settings.partitions) for run_id in everywhere} == set(
            range(settings.partitions)
        )


async def test_runs_end_once_while_executors_come_and_go(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, coming_app, leaving_app = new_name(), Executor(ignore_unknown=True), Executor(ignore_unknown=True)
    runs: list[str] = []
    came, given_back, leaving = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def three_steps(context: RunContext) -> str:
        for step in range(3):
            await context.log(f"step {step}")
            await asyncio.sleep(0.05)
        return context.run_id

    @leaving_app.run(name)
    async def until_it_leaves(context: RunContext) -> str:
        await context.log("step 0")
        leaving.set()
        try:
            await asyncio.Event().wait()
        finally:
            given_back.set()

    @coming_app.run(name)
    async def three_steps_of_a_newcomer(context: RunContext) -> str:
        came.set()
        return await three_steps(context)

    async def submit_until(happened: asyncio.Event) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not happened.is_set():
                runs.append(f"{name}-{len(runs)}")
                await client.submit(runs[-1], name)
                await asyncio.sleep(0.02)

    app.run(name)(three_steps)
    async with app.runner(settings, group=group, concurrency=4):
        second = await leaving_app.runner(settings, group=group, concurrency=4).start()
        await submit_until(leaving)
        async with coming_app.runner(settings, group=group, concurrency=4):
            await submit_until(came)
            await second.stop(0.0)
            ends = await asyncio.gather(*(end_of(client, run_id) for run_id in runs))
    assert given_back.is_set()
    assert [end.result for end in ends] == runs
    said: dict[str, list[str]] = {run_id: [] for run_id in runs}
    async for event in client.follow_events(follow=False):
        if event.run_id in said and event.type == "log":
            said[event.run_id].append(event.line)
    assert all(lines == ["step 0", "step 1", "step 2"] for lines in said.values())


async def test_a_cancelled_run_stops_its_function_quietly(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, plain_name = new_name(), new_name()
    begun, plain_begun, ended = asyncio.Event(), threading.Event(), []

    @app.run(name)
    async def function(context: RunContext) -> None:
        try:
            await context.log("begun")
            begun.set()
            while True:
                await context.progress("still here")
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            ended.append("async")
            raise

    @app.run(plain_name)
    def plain(context: SyncRunContext) -> None:
        try:
            while True:
                # Many more reports than answers that are waited for.
                context.log("still here")
                plain_begun.set()
                time.sleep(0.001)
        except RunStopped:
            ended.append("plain")
            assert context.stopped
            raise

    async with app.runner(settings, group=group):
        for each in (name, plain_name):
            await client.submit(f"run-{each}", each)
        await begun.wait()
        await asyncio.to_thread(plain_begun.wait)
        for each in (name, plain_name):
            await client.cancel(f"run-{each}", "enough")
        await asyncio.to_thread(wait_until, lambda: len(ended) == 2, "both functions to stop", PATIENCE_S)
    for each in (name, plain_name):
        end = await client.get_terminal(f"run-{each}")
        assert end is not None
        assert (end.status, end.error) == ("cancelled", "enough")
    for each in (name, plain_name):
        partition = partition_for(f"run-{each}".encode(), 4)
        offset = await asyncio.to_thread(dispatch_offset, settings, f"run-{each}")
        assert await asyncio.to_thread(committed, settings, group, partition) > offset


async def test_a_superseded_attempt_stops_quietly_and_a_record_that_is_no_dispatch_is_passed_over(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, run_id = new_name(), new_name()
    seen: list[int] = []
    superseded = asyncio.Event()

    @app.run(name)
    async def function(context: RunContext) -> str:
        seen.append(context.attempt)
        try:
            while context.attempt == 7:
                await context.log("from another attempt")
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            superseded.set()
            raise
        await superseded.wait()
        return "the current attempt"

    submitted = await client.submit(run_id, name)
    other = {"runId": run_id, "instanceId": submitted.instance_id, "attempt": 7, "name": name}
    producer = Producer({"bootstrap.servers": settings.brokers, "partitioner": "murmur2_random"})
    for value in (b"\xff", b"{}", orjson.dumps({**other, "dispatchedAt": 0, "commandId": "c"})):
        producer.produce(settings.name("run-dispatch"), value, run_id.encode())
    assert producer.flush(20) == 0
    async with app.runner(settings, group=group):
        assert (await end_of(client, run_id)).result == "the current attempt"
    assert sorted(seen) == [1, 7]
    assert [event.type for event in await events_of(client, run_id)] == ["status", "terminal"]


async def test_sigterm_lets_go_in_time_of_what_another_executor_then_finishes(
    settings: Settings, client: RunlaneClient, group: str, tmp_path: Path
) -> None:
    name, arrived = new_name(), tmp_path / "arrived"
    params = {"lines": 2, "gate": str(tmp_path / "gate"), "arrived": str(arrived)}
    runs = {f"{name}-async": "lines", f"{name}-plain": "stubborn"}
    with ExecutorProcess(settings, group, tmp_path / "log") as first:
        for run_id, function in runs.items():
            await client.submit(run_id, function, params)
        await asyncio.to_thread(
            wait_until,
            lambda: arrived.exists() and arrived.read_text().count("\n") == 2,
            "both runs to be executed",
            PATIENCE_S,
        )
        code, seconds = await asyncio.to_thread(first.terminate)
    assert code == 0
    assert seconds < 10
    (tmp_path / "gate").touch()
    with ExecutorProcess(settings, group, tmp_path / "log"):
        ends = [await end_of(client, run_id) for run_id in runs]
    assert [end.status for end in ends] == ["completed", "completed"]
    said = [event.line for event in await events_of(client, f"{name}-async") if event.type == "log"]
    assert said == ["line 0", "line 1", "through the gate"]
