"""Launching runs, sessions, instances, traces and signals by the client, against a real worker."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.encrypted_sessions import EncryptedSession
from streams import topic_admin
from streams.client import RunlaneClient
from streams.client_errors import CommandRefused
from streams.launching.launch import LaunchStateNotStored
from streams.launching.session_keys import KeyRing
from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from tests.worker_process import WorkerProcess

RING = KeyRing({"key-1": bytes(32)})
URL = "postgres://app:hunter2-s3cr3t@db/main"


@pytest.fixture(scope="module")
def served(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a deployment with a worker and an object store."""
    folder = tmp_path_factory.mktemp("launch")
    settings = Settings(
        brokers=broker,
        prefix=f"launch{uuid.uuid4().hex[:8]}",
        object_store=f"file://{folder}/objects",
    )
    topic_admin.apply(settings)
    with WorkerProcess(broker, settings.prefix, folder) as worker:
        worker.start().wait_ready()
        yield settings
    topic_admin.delete(settings)


@pytest.fixture
async def client(served: Settings) -> AsyncIterator[RunlaneClient]:
    async with RunlaneClient(served) as opened:
        yield opened


@pytest.fixture
def run_id() -> str:
    return f"play/x/run/{uuid.uuid4().hex[:8]}"


async def dispatches(client: RunlaneClient, run_id: str) -> int:
    """How often the run was dispatched: each has an event `running`."""
    try:
        return (await client.status(run_id)).latest_seq
    except CommandRefused:
        return 0


async def test_a_launch_stores_dispatches_and_records(client: RunlaneClient, run_id: str) -> None:
    params = {"day": "2025-01-31", "dynamicWorkerCode": "export default 1"}
    session = RING.encrypt(run_id, "main", {"url": URL})
    launched = await client.launch(run_id, "import", params, sessions=[session], base_url="http://x/")
    assert (launched.run_id, launched.status, launched.seq) == (run_id, "running", 1)
    phases = [timing.phase for timing in launched.timings]
    assert phases == [
        f"coordinator.{phase}"
        for phase in (
            "launch_lookup",
            "submit_params",
            "retry_state_persistence",
            "dispatch",
            "instance_record",
        )
    ]
    assert all(timing.ms >= 0 for timing in launched.timings)
    instance = await client.get_instance(run_id)
    assert instance is not None
    assert (instance.instance_id, instance.attempt) == (launched.instance_id, 1)
    claim = await client.claim_retry(run_id, 3)
    assert (claim.claimed, claim.attempts, claim.params) == (True, 1, {"day": "2025-01-31"})
    (found,) = await client.get_sessions(run_id)
    assert RING.decrypt(run_id, found) == {"url": URL}
    traces = (await client.list_traces(run_id)).traces
    assert [trace.phase for trace in traces] == phases
    assert {trace.source for trace in traces} == {"coordinator"}


async def test_large_parameters_go_into_the_object_store(client: RunlaneClient, run_id: str) -> None:
    params = {"rows": ["é" * 1000] * 40, "dynamicWorkerCode": "x"}
    launched = await client.launch(run_id, "import", params)
    assert "coordinator.params_spill" in [timing.phase for timing in launched.timings]
    claim = await client.claim_retry(run_id, 3)
    assert claim.params is None
    assert claim.params_bytes == claim.params_ref["bytes"]
    assert await client.read_params(claim.params_ref) == {"rows": params["rows"]}


async def test_a_second_launch_starts_nothing_and_keeps_the_state(client: RunlaneClient, run_id: str) -> None:
    first = await client.launch(run_id, "import", {"a": 1})
    await client.claim_retry(run_id, 3)
    again = await client.launch(run_id, "import", {"a": 2})
    assert (again.seq, again.instance_id) == (first.seq, first.instance_id)
    assert await dispatches(client, run_id) == 1
    claim = await client.claim_retry(run_id, 3)
    assert (claim.attempts, claim.params) == (2, {"a": 1})


async def test_launches_side_by_side_start_a_run_once(client: RunlaneClient, run_id: str) -> None:
    launched = await asyncio.gather(*(client.launch(run_id, "import", {"a": 1}) for _ in range(8)))
    assert {found.seq for found in launched} == {1}
    assert await dispatches(client, run_id) == 1


async def test_a_run_whose_launch_state_cannot_be_stored_is_not_dispatched(
    client: RunlaneClient, served: Settings, run_id: str, tmp_path: Path
) -> None:
    async def failure(with_client: RunlaneClient, params: Any, **more: Any) -> LaunchStateNotStored:
        with pytest.raises(LaunchStateNotStored) as raised:
            await with_client.launch(run_id, "import", params, **more)
        error = raised.value
        assert error.code == "WORKFLOW_RETRY_STATE_PERSISTENCE_FAILED"
        assert error.as_json()["runId"] == run_id
        assert await dispatches(client, run_id) == 0
        return error

    too_large = await failure(client, "x" * (8 * 1024 * 1024))
    assert "staged files" in str(too_large)
    bad = EncryptedSession.model_construct(
        name="main", algorithm="A256GCM", key_id="k", nonce="A" * 16, ciphertext=URL
    )
    refused = await failure(client, {"a": 1}, sessions=[bad])
    assert "SESSION_NOT_ENCRYPTED" in str(refused)
    assert "s3cr3t" not in str(refused)
    no_store = served.model_copy(update={"object_store": None})
    async with RunlaneClient(no_store) as without:
        assert "object_store" in str(await failure(without, "x" * 70_000))
    blocked = tmp_path / "objects"
    blocked.write_text("a file where the folder would be")
    broken = served.model_copy(update={"object_store": f"file://{blocked}/below"})
    async with RunlaneClient(broken) as with_broken:
        await failure(with_broken, "x" * 70_000)
    assert (await client.launch(run_id, "import", {"a": 1})).seq == 1


async def test_a_run_that_has_ended_says_so(client: RunlaneClient, run_id: str) -> None:
    await client.cancel(run_id)
    with pytest.raises(CommandRefused) as raised:
        await client.launch(run_id, "import", {"a": 1})
    assert raised.value.code == "RUN_ENDED"


async def test_a_run_without_parameters_can_be_launched(client: RunlaneClient, run_id: str) -> None:
    await client.launch(run_id, "import")
    claim = await client.claim_retry(run_id, 1)
    assert (claim.claimed, claim.params, claim.params_ref) == (True, None, None)


async def test_sessions_that_come_a_moment_later_are_found(client: RunlaneClient, run_id: str) -> None:
    session = RING.encrypt(run_id, "main", {"url": URL})

    async def put_later() -> None:
        await asyncio.sleep(0.06)
        await client.put_sessions(run_id, [session])

    _, found = await asyncio.gather(put_later(), client.get_sessions(run_id))
    assert found == [session]
    with pytest.raises(CommandRefused) as raised:
        await client.get_sessions(f"{run_id}-other")
    assert raised.value.code == "SESSIONS_NOT_FOUND"


async def test_a_session_in_the_clear_is_not_even_sent(client: RunlaneClient, run_id: str) -> None:
    for call in (client.put_sessions, lambda run, sessions: client.submit(run, "x", sessions=sessions)):
        with pytest.raises(TypeError, match="encrypt it") as raised:
            await call(run_id, [{"url": URL}])  # type: ignore[list-item]
        assert "s3cr3t" not in str(raised.value)


async def test_a_signal_is_what_a_run_waits_for(client: RunlaneClient, run_id: str) -> None:
    waiting = asyncio.create_task(client.await_child(run_id, "approval"))
    answer = await client.signal(run_id, "approval", payload={"by": "zoe"})
    assert (answer.signal_type, answer.stored) == ("integration_event_approval", True)
    state = await waiting
    assert state is not None
    assert state.data == {"by": "zoe"}


async def test_status_has_typed_traces(client: RunlaneClient, run_id: str) -> None:
    assert await client.add_trace(run_id, "load", 12.5, ts=5, more={"rows": 3}) == 1
    status = await client.status(run_id, trace=True)
    assert status.traces is not None
    (trace,) = status.traces
    assert (trace.phase, trace.ms, trace.ts, trace.run_id) == ("load", 12.5, 5, run_id)
    assert trace.model_extra == {"rows": 3}


def test_scripts_have_the_same_methods(served: Settings, run_id: str) -> None:
    with RunlaneSyncClient(served) as client:
        session = RING.encrypt(run_id, "main", 1)
        client.launch(run_id, "import", {"a": 1}, sessions=[session])
        assert client.get_sessions(run_id) == [session]
        assert client.claim_retry(run_id, 1).params == {"a": 1}
        client.put_instance(run_id, "retry", attempt=2)
        instance = client.get_instance(run_id)
        assert instance is not None
        assert instance.instance_id == "retry"
        client.add_trace(run_id, "p", 1)
        assert client.list_traces(run_id).traces[-1].phase == "p"
        assert client.signal(run_id, signal_type="x").signal_type == "x"
