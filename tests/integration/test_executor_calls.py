"""Calls that are executed once within a run, and results that a run waits for, with real executors on a real broker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from schemas.call_results import CallEntry
from schemas.rate_rules import RateRule
from schemas.terminals import TerminalState
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.execution.json_values import hash_input
from streams.executor import CallFailed, Executor, RunContext, RunStopped, SyncRunContext
from streams.settings import Settings
from tests.integration.executor_process import ExecutorProcess
from tests.serving import served
from tests.waiting import wait_until

PATIENCE_S = 120


@pytest.fixture(scope="module")
def settings(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics with a worker, for all tests of this module; each test uses a consumer group of its own."""
    prefix = f"k{uuid.uuid4().hex[:10]}"
    settings = Settings(brokers=broker, prefix=prefix, command_timeout_s=PATIENCE_S, session_timeout_ms=6000)
    with served(settings, tmp_path_factory.mktemp("worker")):
        yield settings


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[RunlaneClient]:
    async with RunlaneClient(settings) as opened:
        yield opened


@pytest.fixture
def app() -> Executor:
    return Executor(ignore_unknown=True)


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4().hex[:8]}"


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:10]}"


async def end_of(client: RunlaneClient, run_id: str) -> TerminalState:
    return await client.wait_terminal(run_id, timeout=PATIENCE_S)


async def entry_of(client: RunlaneClient, run_id: str) -> CallEntry:
    """The run's only call."""
    (entry,) = (await client.list_calls(run_id)).entries
    return entry


def count_lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0


async def arrived(file: Path, count: int = 1) -> None:
    """Wait until functions have written so many lines."""
    await asyncio.to_thread(
        wait_until, lambda: count_lines(file) >= count, f"{count} lines in {file}", PATIENCE_S
    )


class Answer(BaseModel):
    rows: tuple[int, ...]


async def test_an_async_function_executes_a_call_once_and_gets_its_stored_result(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, run_id, executed = new_name(), new_name(), []

    async def count(given: Any) -> Answer:
        executed.append(given)
        await asyncio.sleep(0)
        return Answer(rows=(1, len(executed)))

    def plainly(given: Any) -> tuple[Any, ...]:
        executed.append(given)
        return (given, None)

    @app.run(name)
    async def function(context: RunContext) -> list[Any]:
        first = await asyncio.gather(*(context.call("count", {"b": 1, "a": [2]}, count) for _ in range(5)))
        again = await context.call("count", {"a": [2], "b": 1}, count)
        other = await context.call("count", {"a": [2], "b": 2}, count)
        plain = await context.call("plain", 7, plainly)
        return [first, again, other, plain]

    async with app.runner(settings, group=group):
        await client.submit(run_id, name)
        end = await end_of(client, run_id)
    assert end.error is None
    assert end.result == [[{"rows": [1, 1]}] * 5, {"rows": [1, 1]}, {"rows": [1, 2]}, [7, None]]
    assert len(executed) == 3
    listed = await client.list_calls(run_id)
    assert {(entry.tool_id, entry.state, entry.fencing_number) for entry in listed.entries} == {
        ("count", "published", 1),
        ("plain", "published", 1),
    }
    assert hash_input({"b": 1, "a": [2]}) in {entry.input_hash for entry in listed.entries}


async def test_a_plain_function_executes_a_call_once(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, run_id, executed = new_name(), new_name(), []

    @app.run(name)
    def function(context: SyncRunContext) -> list[Any]:
        with pytest.raises(TypeError, match="async"):
            context.call("async", 1, end_of)
        return [context.call("tool", n % 2, lambda given: executed.append(given) or given) for n in range(4)]

    async with app.runner(settings, group=group):
        await client.submit(run_id, name)
        end = await end_of(client, run_id)
    assert end.error is None
    assert end.result == [0, 1, 0, 1]
    assert executed == [0, 1]


async def test_a_failed_call_stays_failed_or_is_released(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, run_id, executed = new_name(), new_name(), []

    async def fail(given: Any) -> Any:
        executed.append(given)
        if given == "not json":
            return float("nan")
        if given == "too large":
            return "x" * settings.max_command_bytes
        raise LookupError(f"no {given}")

    async def attempt(context: RunContext, given: str, **options: Any) -> Any:
        try:
            return await context.call("fail", given, fail, **options)
        except CallFailed as failed:
            return failed.error["name"], failed.error["message"][:10]

    @app.run(name)
    async def function(context: RunContext) -> Any:
        kept = [await attempt(context, "kept") for _ in range(2)]
        released = [await attempt(context, "released", on_failure="release") for _ in range(2)]
        wrong = [await attempt(context, given) for given in ("not json", "too large")]
        return [kept, released, wrong]

    async with app.runner(settings, group=group):
        await client.submit(run_id, name)
        end = await end_of(client, run_id)
    assert end.error is None
    kept, released, wrong = end.result
    assert kept == [["LookupError", "no kept"]] * 2
    assert released == [["LookupError", "no release"]] * 2
    assert [error for error, _ in wrong] == ["TypeError", "ValueError"]
    assert executed == ["kept", "released", "released", "not json", "too large"]
    states = {entry.fencing_number: entry.state for entry in (await client.list_calls(run_id)).entries}
    assert states == {1: "failed", 2: "released"}


def gated(tmp_path: Path, lease_s: float, *, blocks: bool = False) -> tuple[dict[str, Any], Path, Path]:
    """Parameters of a run of `executor_jobs.call`, the file that says that it executes, and the one it waits for."""
    there, gate = tmp_path / "there", tmp_path / "gate"
    params = {"arrived": str(there), "gate": str(gate), "leaseS": lease_s, "blocks": blocks}
    return params, there, gate


async def test_a_lease_outlives_code_that_blocks_the_event_loop(
    settings: Settings, client: RunlaneClient, group: str, tmp_path: Path
) -> None:
    run_id, (params, there, gate) = new_name(), gated(tmp_path, 2, blocks=True)
    with ExecutorProcess(settings, group, tmp_path / "log") as executor:
        await client.submit(run_id, "call", params)
        await arrived(there)
        name = (run_id, "gated", hash_input(params))
        taken = await client.await_call(*name, timeout_ms=8000, claim_for="thief")
        assert taken.status == "timeout"
        gate.touch()
        assert (await end_of(client, run_id)).result == executor.pid
    entry = await entry_of(client, run_id)
    assert (entry.state, entry.fencing_number) == ("published", 1)


async def test_when_an_executor_is_killed_another_one_takes_its_call_over(
    settings: Settings, client: RunlaneClient, group: str, tmp_path: Path
) -> None:
    run_id, (params, there, gate) = new_name(), gated(tmp_path, 5)
    with ExecutorProcess(settings, group, tmp_path / "log") as first:
        await client.submit(run_id, "call", params)
        await arrived(there)
        first.kill()
    with ExecutorProcess(settings, group, tmp_path / "log") as second:
        await arrived(there, 2)
        entry = await entry_of(client, run_id)
        assert (entry.state, entry.fencing_number) == ("claimed", 2)
        assert entry.owner is not None
        assert entry.owner.endswith(f":{second.pid}")
        gate.touch()
        assert (await end_of(client, run_id)).result == second.pid
    with pytest.raises(CommandRefused) as late:
        await client.publish_call(run_id, "gated", hash_input(params), 1, "of the killed one")
    assert (late.value.code, late.value.details["fencingNumber"]) == ("CALL_FENCED", 2)


async def test_an_executor_that_stood_still_drops_what_another_one_took_over(
    settings: Settings, client: RunlaneClient, group: str, tmp_path: Path
) -> None:
    run_id, (params, there, gate) = new_name(), gated(tmp_path, 1)
    with ExecutorProcess(settings, group, tmp_path / "log") as executor:
        await client.submit(run_id, "call", params)
        await arrived(there)
        executor.freeze()
        name = (run_id, "gated", hash_input(params))
        taken = await client.await_call(*name, claim_for="other")
        assert (taken.status, taken.fencing_number) == ("claimed", 2)
        executor.thaw()
        end = await end_of(client, run_id)
        assert end.status == "failed"
        assert end.error is not None
        assert end.error.startswith("LeaseLost: the result of gated was dropped, since fencing number 1")
        await client.publish_call(*name, 2, "other's")
        gate.touch()
    entry = await entry_of(client, run_id)
    assert (entry.state, entry.owner, entry.fencing_number) == ("published", "other", 2)


async def test_an_executor_that_is_stopped_gives_its_calls_back(
    settings: Settings, client: RunlaneClient, group: str, tmp_path: Path
) -> None:
    run_id, (params, there, gate) = new_name(), gated(tmp_path, 3600)
    with ExecutorProcess(settings, group, tmp_path / "log") as first:
        await client.submit(run_id, "call", params)
        await arrived(there)
        assert first.terminate()[0] == 0
    assert (await entry_of(client, run_id)).state == "released"
    with ExecutorProcess(settings, group, tmp_path / "log") as second:
        await arrived(there, 2)
        gate.touch()
        assert (await end_of(client, run_id)).result == second.pid


async def test_a_run_that_is_cancelled_stops_its_calls_and_waits(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, runs, stopped, started = new_name(), [new_name(), new_name()], set(), set()

    async def forever(given: Any) -> None:
        started.add(given)
        await asyncio.sleep(PATIENCE_S)

    @app.run(name)
    async def function(context: RunContext) -> None:
        try:
            if context.params == "call":
                await context.call("forever", context.run_id, forever, lease_s=1)
            else:
                started.add(context.run_id)
                await context.wait_for("never")
        finally:
            stopped.add(context.run_id)

    async with app.runner(settings, group=group):
        for run_id, kind in zip(runs, ("call", "wait"), strict=True):
            await client.submit(run_id, name, kind)
        await asyncio.to_thread(wait_until, lambda: started == set(runs), "both to have begun")
        await asyncio.sleep(0.5)
        for run_id in runs:
            assert (await client.cancel(run_id)).status == "cancelled"
        await asyncio.to_thread(wait_until, lambda: stopped == set(runs), "both to be stopped")


async def test_a_run_waits_for_results_that_others_store(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    names, runs = [new_name(), new_name()], [new_name(), new_name()]

    @app.run(names[0])
    async def waits(context: RunContext) -> Any:
        with pytest.raises(TimeoutError, match="late"):
            await context.await_child("late", timeout_s=0.3)
        return await asyncio.gather(context.await_child("child", 60), context.wait_for("signal"))

    @app.run(names[1])
    def waits_plainly(context: SyncRunContext) -> Any:
        with pytest.raises(TimeoutError):
            context.wait_for("late", timeout_s=0.3)
        return [context.await_child("child"), context.wait_for("signal", 60)]

    async with app.runner(settings, group=group):
        for name, run_id in zip(names, runs, strict=True):
            await client.submit(run_id, name)
            await client.set_child(run_id, "signal", [1])
        await asyncio.sleep(1.0)
        for run_id in runs:
            await client.set_child(run_id, "child", {"status": "completed"})
            assert (await end_of(client, run_id)).result == [{"status": "completed"}, [1]]


@pytest.mark.parametrize("is_plain", [False, True])
async def test_calls_take_permits_of_a_bucket_and_results_that_are_there_take_none(
    settings: Settings, client: RunlaneClient, app: Executor, group: str, is_plain: bool
) -> None:
    name, run_id, bucket, executed = new_name(), new_name(), f"org:{new_name()}", []
    await client.put_rate_rules(
        bucket, [RateRule(rule_id="hour", requests_per_window=2, window_ms=3_600_000)]
    )

    def tool(given: Any) -> Any:
        executed.append(given)
        return given

    async def function(context: RunContext) -> list[Any]:
        values = [await context.call("tool", number, tool, bucket=bucket) for number in (1, 2, 1, 2, 1)]
        try:
            await context.call("tool", 3, tool, bucket=bucket, cost=3)
        except CommandRefused as refusal:
            values.append(refusal.code)
        try:
            async with asyncio.timeout(1):
                await context.call("tool", 4, tool, bucket=bucket)
        except TimeoutError:
            values.append("no permit")
        return values

    def plain_function(context: SyncRunContext) -> list[Any]:
        values = [context.call("tool", number, tool, bucket=bucket) for number in (1, 2, 1, 2, 1)]
        try:
            context.call("tool", 3, tool, bucket=bucket, cost=3)
        except CommandRefused as refusal:
            values.append(refusal.code)
        return [*values, "no permit"]

    app.run(name)(plain_function if is_plain else function)
    async with app.runner(settings, group=group):
        await client.submit(run_id, name)
        end = await end_of(client, run_id)
    assert end.result == [1, 2, 1, 2, 1, "RATE_NEVER_GRANTED", "no permit"]
    assert executed == [1, 2]
    states = {entry.input_hash: entry.state for entry in (await client.list_calls(run_id)).entries}
    assert [states.pop(hash_input(number)) for number in (1, 2, 3)] == ["published", "published", "released"]
    assert "failed" not in states.values()


@pytest.mark.parametrize("is_plain", [False, True])
async def test_a_call_that_waits_for_a_permit_is_not_executed_when_its_run_has_ended(
    settings: Settings, client: RunlaneClient, app: Executor, group: str, is_plain: bool
) -> None:
    name, run_id, bucket, executed = new_name(), new_name(), f"org:{new_name()}", []
    hour = RateRule(rule_id="hour", requests_per_window=1, window_ms=3_600_000)
    await client.put_rate_rules(bucket, [hour])
    await client.acquire_permits(bucket, [hour])
    stopped: list[type[BaseException]] = []

    async def function(context: RunContext) -> None:
        try:
            await context.call("tool", 1, executed.append, bucket=bucket)
        except BaseException as error:
            stopped.append(type(error))
            raise

    def plain_function(context: SyncRunContext) -> None:
        try:
            context.call("tool", 1, executed.append, bucket=bucket)
        except BaseException as error:
            stopped.append(type(error))
            raise

    app.run(name)(plain_function if is_plain else function)
    async with app.runner(settings, group=group):
        await client.submit(run_id, name)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if (await client.peek_permits(bucket)).waiting:
                    break
                await asyncio.sleep(0.05)
        await client.cancel(run_id)
        await asyncio.to_thread(wait_until, lambda: bool(stopped), "the call to be stopped", PATIENCE_S)
    assert stopped == [RunStopped if is_plain else asyncio.CancelledError]
    assert executed == []
