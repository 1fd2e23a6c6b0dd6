"""What runs are given and what reaches them: large parameters, encrypted sessions, signals, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from schemas.terminals import TerminalState
from schemas.topics import TOPICS
from streams import topic_admin
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.executor import CallFailed, Executor, RunContext, SyncRunContext
from streams.launching.session_keys import KeyRing
from streams.settings import Settings
from tests.contract.topic_reader import TopicReader
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

PATIENCE_S = 120
RING = KeyRing({"key-1": bytes(32)})
PASSWORD = f"pw-{uuid.uuid4().hex}"
URL = f"postgres://app:{PASSWORD}@db.internal:5432/main"
LARGE = {"rows": ["é" * 1000] * 40}


@pytest.fixture(scope="module")
def settings(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Topics and an object store, for all tests of this module."""
    settings = Settings(
        brokers=broker,
        prefix=f"i{uuid.uuid4().hex[:10]}",
        command_timeout_s=PATIENCE_S,
        object_store=f"file://{tmp_path_factory.mktemp('objects')}",
    )
    topic_admin.apply(settings)
    yield settings
    topic_admin.delete(settings)


@pytest.fixture(scope="module", autouse=True)
def worker(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """Their worker."""
    with WorkerProcess(settings.brokers or "", settings.prefix, tmp_path_factory.mktemp("worker")) as process:
        yield process.start().wait_ready()


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[RunlaneClient]:
    async with RunlaneClient(settings) as opened:
        yield opened


@pytest.fixture
def app() -> Executor:
    return Executor(ignore_unknown=True, session_keys=RING)


@pytest.fixture
def group() -> str:
    return f"g{uuid.uuid4().hex[:8]}"


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:10]}"


async def end_of(client: RunlaneClient, run_id: str) -> TerminalState:
    return await client.wait_terminal(run_id, timeout=PATIENCE_S)


async def test_parameters_in_the_object_store_are_read_and_checked(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, called = new_name(), []

    @app.run(name)
    async def function(context: RunContext) -> Any:
        called.append(context.run_id)
        return [context.params == LARGE, context.params_ref is not None]

    runs = {what: f"{what}-{name}" for what in ("whole", "gone", "changed")}
    for what, run_id in runs.items():
        await client.launch(run_id, name, LARGE)
        key = (await client.claim_retry(run_id, 1)).params_ref["storageKey"]
        stored = Path(str(settings.object_store).removeprefix("file://")) / key
        if what == "gone":
            stored.unlink()
        elif what == "changed":
            stored.write_bytes(stored.read_bytes().replace(b"rows", b"ROWS"))
    own = f"own-{name}"
    await client.submit(own, name, params_ref={"bucket": "of the application"})
    async with app.runner(settings, group=group):
        ends = {what: await end_of(client, run_id) for what, run_id in runs.items()}
        assert (await end_of(client, own)).result == [False, True]
    assert ends["whole"].result == [True, True]
    for what, said in (("gone", "are missing in the object store"), ("changed", "another hash")):
        first, *stack = (ends[what].error or "").splitlines()
        assert first.startswith("ParamsRefError: the parameters ")
        assert said in first
        assert not stack
    assert sorted(called) == sorted([own, runs["whole"]])
    unknowing = settings.model_copy(update={"object_store": None})
    async with app.runner(unknowing, group=new_name()):
        await client.launch(f"late-{name}", name, LARGE)
        assert "set object_store" in ((await end_of(client, f"late-{name}")).error or "")


async def test_sessions_are_decrypted_for_the_function_and_told_nobody(
    settings: Settings,
    client: RunlaneClient,
    worker: WorkerProcess,
    app: Executor,
    group: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, plain_name = new_name(), new_name()
    runs = {name: f"{name}-1", plain_name: f"{plain_name}-1"}
    seen: dict[str, Any] = {}

    @app.run(name)
    async def careless(context: RunContext) -> Any:
        seen[name] = await context.sessions()
        url = seen[name]["main"]["url"]
        await context.log(f"connecting to {url}")
        await context.progress("connected", logs=[url], active_node_id=PASSWORD)

        def fail(_: Any) -> None:
            raise ConnectionError(f"no route to {url}")

        with pytest.raises(CallFailed, match=r"no route to \(hidden\)"):
            await context.call("query", 1, fail)
        raise ConnectionError(f"cannot connect to {url}")

    @app.run(plain_name)
    def plain(context: SyncRunContext) -> Any:
        seen[plain_name] = context.sessions()
        return {"used": seen[plain_name]["main"]["url"]}

    caplog.set_level("DEBUG", "runlane")
    async with app.runner(settings, group=group):
        for function, run_id in runs.items():
            sessions = [
                RING.encrypt(run_id, "main", {"url": URL, "schema": "public"}),
                RING.encrypt(run_id, "spare", {"password": PASSWORD}),
            ]
            await client.launch(run_id, function, {"a": 1}, sessions=sessions)
        ends = {function: await end_of(client, run_id) for function, run_id in runs.items()}
    whole = {"main": {"url": URL, "schema": "public"}, "spare": {"password": PASSWORD}}
    assert seen == {name: whole, plain_name: whole}
    first, *_ = (ends[name].error or "").splitlines()
    assert first == "ConnectionError: cannot connect to (hidden)"
    assert ends[plain_name].result == {"used": "(hidden)"}

    reader = TopicReader(settings.brokers or "", {topic: settings.name(topic) for topic in TOPICS})
    try:
        for topic in TOPICS:
            reader.catch_up(topic)
            for record in reader.records(topic):
                require_secret_free(record.key or b"", topic)
                require_secret_free(record.value or b"", topic)
                for _, header in record.headers:
                    require_secret_free(header or b"", topic)
    finally:
        reader.close()
    require_secret_free(caplog.text.encode(), "the executor's log")
    require_secret_free(worker.log_file.read_bytes(), "the worker's log")
    require_secret_free(worker.get("/metrics")[1].encode(), "the worker's metrics")


def require_secret_free(data: bytes, where: str) -> None:
    assert PASSWORD.encode() not in data, where
    assert b64encode(PASSWORD.encode()).rstrip(b"=")[:-2] not in data, where


async def test_sessions_that_cannot_be_had_say_why(
    settings: Settings, client: RunlaneClient, group: str
) -> None:
    name, errors = new_name(), {}

    async def function(context: RunContext) -> None:
        try:
            await context.sessions()
        except Exception as error:
            errors[context.params] = error

    apps = {
        "none": Executor(ignore_unknown=True, session_keys=RING),
        "keyless": Executor(ignore_unknown=True),
        "other keys": Executor(ignore_unknown=True, session_keys=KeyRing({"key-2": bytes(32)})),
    }
    for kind, app in apps.items():
        run_id = f"{name}-{kind}"
        app.run(run_id)(function)
        if kind != "none":
            await client.put_sessions(run_id, [RING.encrypt(run_id, "main", {"url": URL})])
        async with app.runner(settings, group=f"{group}-{kind}".replace(" ", "-")):
            await client.submit(run_id, run_id, kind)
            await end_of(client, run_id)
    assert isinstance(errors["none"], CommandRefused)
    assert errors["none"].code == "SESSIONS_NOT_FOUND"
    assert "session_keys=" in str(errors["keyless"])
    assert "'key-1'; there are: key-2" in str(errors["other keys"])
    assert not any(PASSWORD in str(error) for error in errors.values())


async def test_a_signal_wakes_another_run_and_is_sent_once_by_all_executions(
    settings: Settings, client: RunlaneClient, group: str
) -> None:
    sender, receiver, over = new_name(), new_name(), new_name()
    both, arrived = asyncio.Event(), []
    apps = [Executor(ignore_unknown=True) for _ in range(2)]

    async def function(context: RunContext) -> Any:
        arrived.append(context.run_id)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        answer = await context.signal(receiver, "approval", payload={"by": "zoë"})
        assert (answer.signal_type, answer.stored) == ("integration_event_approval", True)
        await asyncio.gather(*(context.signal(receiver, signal_type="tick", payload=n % 2) for n in range(4)))
        with pytest.raises(CommandRefused) as raised:
            await context.signal(over, "late")
        return raised.value.code

    @apps[0].run(receiver)
    def waits(context: SyncRunContext) -> Any:
        context.signal(context.run_id, signal_type="own", payload=7)
        return [context.wait_for("approval"), context.wait_for("own")]

    for app in apps:
        app.run(sender)(function)
    await client.cancel(over)
    async with apps[0].runner(settings, group=group), apps[1].runner(settings, group=new_name()):
        await client.submit(receiver, receiver)
        async with asyncio.timeout(PATIENCE_S):
            while (status := await client.status(receiver, wait_ms=100)).status != "sleeping":
                pass
        assert status.wait == {"kind": "integration_event_batch", "eventKeys": ["approval"]}
        await client.submit(sender, sender)
        assert (await end_of(client, sender)).result == "RUN_ENDED"
        assert (await end_of(client, receiver)).result == [{"by": "zoë"}, 7]
    reader = TopicReader(settings.brokers or "", {"run-commands": settings.name("run-commands")})
    try:
        reader.catch_up("run-commands")
        commands = [orjson.loads(record.value or b"{}") for record in reader.records("run-commands")]
    finally:
        reader.close()
    signals = [
        (command.get("eventKey"), command["commandId"])
        for command in commands
        if command.get("type") == "run.signal" and command["runId"] == receiver
    ]
    assert [key for key, _ in signals].count("approval") == 2
    # One approval, four ticks, and its own one: each with one id, whoever sent it.
    assert len({command_id for _, command_id in signals}) == 6


async def test_a_cancellation_reaches_functions_that_report_nothing(
    settings: Settings, client: RunlaneClient, app: Executor, group: str
) -> None:
    name, plain_name = new_name(), new_name()
    stopped: list[str] = []
    begun, plain_begun = asyncio.Event(), threading.Event()

    @app.run(name)
    async def function(context: RunContext) -> None:
        begun.set()
        try:
            await asyncio.sleep(PATIENCE_S)
        finally:
            stopped.append("async")

    @app.run(plain_name)
    def plain(context: SyncRunContext) -> None:
        plain_begun.set()
        deadline = time.monotonic() + PATIENCE_S
        while not context.stopped and time.monotonic() < deadline:
            time.sleep(0.01)
        if context.stopped:
            stopped.append("plain")

    async with app.runner(settings, group=group):
        for each in (name, plain_name):
            await client.submit(each, each)
        await begun.wait()
        await asyncio.to_thread(plain_begun.wait)
        for each in (name, plain_name):
            await client.cancel(each, "enough")
        await asyncio.to_thread(wait_until, lambda: len(stopped) == 2, "both to stop", PATIENCE_S)
    for each in (name, plain_name):
        assert (await end_of(client, each)).error == "enough"
