"""The client on a real broker, against a scripted coordinator: replies, time-outs, iterators, waits."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from streams.client import RunlaneClient
from streams.client_errors import (
    ClientClosedError,
    CommandNotDelivered,
    CommandRefused,
    CommandTimeout,
    EndTimeout,
    EventsMissing,
)
from streams.messaging.async_producer import AsyncProducer
from streams.messaging.kafka_config import producer_config
from streams.partitioner import partition_for
from streams.run_events import UnknownEvent
from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from streams.user_errors import UserError
from tests.conftest import MakeSettings
from tests.integration.responder import Responder
from tests.waiting import wait_until


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[RunlaneClient]:
    async with RunlaneClient(settings) as opened:
        yield opened


class Coordinator:
    """Writes output topics as lanes do, in transactions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._producer = Producer(
            {"bootstrap.servers": settings.brokers, "transactional.id": f"test-{uuid.uuid4()}"}
        )
        self._producer.init_transactions(20)

    def write(self, topic: str, *records: dict[str, Any] | bytes, run_id: str, abort: bool = False) -> None:
        """Write records of one run in one transaction."""
        self._producer.begin_transaction()
        for record in records:
            value = record if isinstance(record, bytes) else orjson.dumps(record)
            partition = partition_for(run_id.encode(), self._settings.partitions)
            self._producer.produce(self._settings.name(topic), value, run_id.encode(), partition)
        if abort:
            self._producer.flush(20)
            self._producer.abort_transaction(20)
        else:
            self._producer.commit_transaction(20)


@pytest.fixture
async def coordinator(settings: Settings) -> Coordinator:
    return await asyncio.to_thread(Coordinator, settings)


def log_event(run_id: str, seq: int, **fields: Any) -> dict[str, Any]:
    event = {"seq": seq, "runId": run_id, "type": "log", "ts": 1, "line": f"line {seq}", "commandId": "c"}
    return {**event, **fields}


def terminal_event(run_id: str, seq: int) -> dict[str, Any]:
    return {**_end(run_id, seq), "type": "terminal", "ts": 5}


def terminal_state(run_id: str, seq: int = 2) -> dict[str, Any]:
    return {**_end(run_id, seq), "completedAt": 5}


def _end(run_id: str, seq: int) -> dict[str, Any]:
    unset = dict.fromkeys(("error", "totalRows", "durationMs", "playName"))
    return {"runId": run_id, "seq": seq, "status": "completed", "result": 7, "commandId": "c", **unset}


# Replies


async def test_only_the_reply_to_its_own_correlation_id_counts(
    settings: Settings, client: RunlaneClient
) -> None:
    address: dict[str, bytes] = {}

    def script(command: dict[str, Any]) -> dict[str, Any] | None:
        headers = responder.commands[-1][1]
        address.update(headers)
        for foreign in (b"somebody-else", b"", headers["correlation-id"] + b"0"):
            reply = {"commandId": command["commandId"], "ok": True, "result": {"seq": 666, "ts": 0}}
            responder.reply({**headers, "correlation-id": foreign}, reply)
        responder.producer.produce(
            settings.name("replies"),
            b"no reply",
            headers["correlation-id"],
            partition=int(headers["reply-partition"]),
        )
        return {"seq": 3, "ts": 4}

    with Responder(settings, script) as responder:
        async with RunlaneClient(settings, reply_partition=2) as other:
            assert (await other.log("run-1", "a")).seq == 3
            assert address["reply-partition"] == b"2"
        assert (await client.log("run-1", "b")).seq == 3


async def test_thousands_of_commands_in_flight_each_get_their_own_answer(
    settings: Settings, client: RunlaneClient
) -> None:
    with Responder(settings, lambda command: {"seq": int(command["event"]["line"]), "ts": 0}):
        answers = await asyncio.gather(*(client.log(f"run-{n % 17}", str(n)) for n in range(3000)))
    assert [answer.seq for answer in answers] == list(range(3000))


async def test_the_first_command_of_a_new_client_gets_its_reply(settings: Settings) -> None:
    with Responder(settings, lambda command: {"seq": 1, "ts": 0}):
        for _ in range(10):
            async with RunlaneClient(settings) as fresh:
                assert (await fresh.log("run-1", "first", timeout=20)).seq == 1


async def test_a_refusal_is_an_exception_with_code_advice_and_the_stored_end(
    settings: Settings, client: RunlaneClient
) -> None:
    def script(command: dict[str, Any]) -> None:
        error = {"code": "RUN_ENDED", "message": "it is over", "terminal": terminal_state("run-1")}
        body = {"commandId": command["commandId"], "ok": False, "error": error}
        responder.reply(responder.commands[-1][1], body)

    with Responder(settings, script) as responder, pytest.raises(CommandRefused) as refused:
        await client.log("run-1", "late", command_id="mine")
    refusal = refused.value
    assert (refusal.code, refusal.reason, refusal.command.command_id) == ("RUN_ENDED", "it is over", "mine")
    assert refusal.advice == "Use a new run id for new work."
    assert refusal.terminal is not None
    assert refusal.terminal.result == 7
    assert "events.append (runId 'run-1', commandId 'mine') was refused: RUN_ENDED" in str(refusal)


# Time-outs and retries


async def test_a_time_out_says_what_was_waited_for_and_that_kafka_has_it(
    settings: Settings, client: RunlaneClient
) -> None:
    with pytest.raises(CommandTimeout) as timed_out:
        await client.submit("run-9", "job", command_id="the-id", timeout=1.5)
    error = timed_out.value
    partition = partition_for(b"run-9", settings.partitions)
    assert error.delivered
    for part in (
        "run.submit",
        "runId 'run-9'",
        "'the-id'",
        f"run-commands[{partition}]",
        "1.5 s",
        "replies[",
    ):
        assert part in str(error)
    assert isinstance(error, TimeoutError)


async def test_attempts_send_the_same_command_id_until_an_answer_comes(
    settings: Settings, client: RunlaneClient
) -> None:
    with Responder(
        settings, lambda command: {"seq": 1, "ts": 0} if len(responder.commands) == 3 else None
    ) as responder:
        assert (await client.log("run-1", "again", timeout=0.5, attempts=20)).seq == 1
        sent = responder.commands
    assert len({command["commandId"] for command, _ in sent}) == 1
    assert len(sent) >= 3


async def test_a_command_that_kafka_never_takes_fails_at_once(client: RunlaneClient) -> None:
    with pytest.raises(CommandNotDelivered, match=r"events\.append .*run-commands"):
        await client.log("run-1", "x" * 9_000_000, attempts=3)
    with pytest.raises(CommandNotDelivered):
        await client.log("run-1", "x" * 17_000_000, attempts=3)


async def test_a_post_asks_for_no_reply_and_tells_where_it_is_stored(
    settings: Settings, client: RunlaneClient
) -> None:
    with Responder(settings, lambda command: None) as responder:
        delivery = await client.sender.post("run.cancel", "run-1", {"reason": "enough"}, command_id="c1")
        assert await delivery == (partition_for(b"run-1", settings.partitions), 0)
        await asyncio.to_thread(wait_until, lambda: responder.commands, "the command's arrival")
    command = {"type": "run.cancel", "commandId": "c1", "runId": "run-1", "reason": "enough"}
    assert responder.commands == [(command, {})]


async def test_a_full_queue_is_waited_out(settings: Settings) -> None:
    small = {**producer_config(settings, 60), "queue.buffering.max.messages": 10}
    producer = AsyncProducer(small)
    deliveries = [await producer.produce(settings.name("run-commands"), b"{}", b"k") for _ in range(500)]
    stored = await asyncio.gather(*deliveries)
    assert [offset for _, offset in stored] == list(range(500))
    assert await producer.close(10) == 0


async def test_missing_topics_and_a_closed_client_are_named(
    make_settings: MakeSettings, settings: Settings
) -> None:
    with pytest.raises(UserError, match="topics apply"):
        await RunlaneClient(make_settings(apply_topics=False)).open()
    client = await RunlaneClient(settings).open()
    waits = [
        asyncio.create_task(client.get_terminal("run-1")),
        asyncio.create_task(client.wait_terminal("run-1")),
        asyncio.create_task(anext(client.events("run-1"), "ended")),
    ]
    await asyncio.wait(waits, timeout=0.5)
    await client.close()
    terminal, end, event = await asyncio.gather(*waits, return_exceptions=True)
    assert isinstance(terminal, ClientClosedError)
    assert isinstance(end, ClientClosedError)
    assert event == "ended"
    with pytest.raises(ClientClosedError, match="not open"):
        await client.get_terminal("run-1")


# Events


async def test_events_are_those_of_the_run_committed_in_order_to_the_terminal_event(
    client: RunlaneClient, coordinator: Coordinator
) -> None:
    neighbour = next(
        name for n in range(99) if partition_for((name := f"other-{n}").encode(), 4) == partition_for(b"r", 4)
    )

    def write_more() -> None:
        coordinator.write("run-events", log_event(neighbour, 1), run_id=neighbour)
        coordinator.write("run-events", log_event("r", 3), run_id="r", abort=True)
        coordinator.write("run-events", log_event("r", 3), terminal_event("r", 4), run_id="r")
        coordinator.write("run-events", log_event("r", 5), run_id="r")

    coordinator.write("run-events", log_event("r", 1), log_event("r", 2), run_id="r")
    assert [event.seq async for event in client.events("r", follow=False)] == [1, 2]
    following = client.events("r", from_seq=2)
    seen = [await anext(following)]
    # A cancelled wait for the next event loses nothing.
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(following), 0.3)
    await asyncio.to_thread(write_more)
    seen += [event async for event in following]
    assert [(event.seq, event.type) for event in seen] == [(2, "log"), (3, "log"), (4, "terminal")]
    assert all(event.run_id == "r" for event in seen)


async def test_what_a_newer_version_wrote_is_surfaced_and_what_is_no_event_is_passed_over(
    client: RunlaneClient, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    strange = log_event("r", 2, type="sleep", until=99)
    coordinator.write(
        "run-events", log_event("r", 1), strange, b"\xff", b"[]", terminal_event("r", 3), run_id="r"
    )
    first, second, last = [event async for event in client.events("r")]
    assert (first.seq, last.seq, last.type) == (1, 3, "terminal")
    assert isinstance(second, UnknownEvent)
    assert second.fields == strange
    assert sum("holds no event of run 'r'" in message for message in caplog.messages) == 2


@pytest.mark.parametrize(("seqs", "missing", "found"), [((2, 3), 1, 2), ((1, 3), 2, 3), ((1, 2, 2), 3, 2)])
async def test_a_gap_or_a_repeat_is_an_error_that_says_so(
    client: RunlaneClient, coordinator: Coordinator, seqs: tuple[int, ...], missing: int, found: int
) -> None:
    coordinator.write("run-events", *(log_event("r", seq) for seq in seqs), run_id="r")
    with pytest.raises(EventsMissing) as error:
        _ = [event async for event in client.events("r")]
    assert (error.value.expected, error.value.found) == (missing, found)


async def test_a_time_hint_starts_in_the_middle_and_all_runs_can_be_followed(
    client: RunlaneClient, coordinator: Coordinator
) -> None:
    coordinator.write("run-events", log_event("r", 1), run_id="r")
    await asyncio.sleep(0.02)
    between = time.time_ns() // 1_000_000
    coordinator.write("run-events", log_event("r", 2), terminal_event("r", 3), run_id="r")
    assert [event.seq async for event in client.events("r", since=between)] == [2, 3]
    assert [event.seq async for event in client.follow_events(follow=False)] == [1, 2, 3]
    await asyncio.sleep(0.02)
    after_all = client.follow_events(start=time.time_ns() // 1_000_000)
    async with after_all, client.follow_events(start="end") as at_end:
        coordinator.write("run-events", log_event("x", 1), run_id="x")
        assert (await anext(after_all)).run_id == "x"
        assert (await anext(at_end)).run_id == "x"


# The end of a run


async def test_waiting_for_an_end_sees_it_whenever_it_comes(
    settings: Settings, client: RunlaneClient, coordinator: Coordinator
) -> None:
    def script(command: dict[str, Any]) -> dict[str, Any] | None:
        if command["runId"] == "ended":
            return {"terminal": terminal_state("ended")}
        if command["runId"] == "silent":
            return None
        if command["type"] == "terminal.get":
            return {"terminal": None}
        status = "completed" if command["runId"] == "evicted" else "running"
        return {"runId": command["runId"], "status": status, "latestSeq": 2}

    coordinator.write("run-terminals", terminal_state("evicted"), run_id="evicted")
    with Responder(settings, script) as responder:
        names = ["ended", "evicted", "later", "later", "silent"]
        waits = [asyncio.create_task(client.wait_terminal(name, timeout=30)) for name in names]
        assert (await waits[0]).run_id == "ended"
        assert (await waits[1]).run_id == "evicted"
        await asyncio.to_thread(
            wait_until,
            lambda: "silent" in {command["runId"] for command, _ in responder.commands},
            "the question about the silent run",
        )
        for name in ("later", "silent"):
            await asyncio.to_thread(coordinator.write, "run-terminals", terminal_state(name), run_id=name)
        assert [end.run_id for end in await asyncio.gather(*waits[2:])] == ["later", "later", "silent"]
        with pytest.raises(EndTimeout, match=r"'never' did not end within 1 s: it was running"):
            await client.wait_terminal("never", timeout=1)
    terminals = [end.run_id async for end in client.follow_terminals(follow=False)]
    assert sorted(terminals) == ["evicted", "later", "silent"]


# The synchronous face


def test_the_synchronous_client_does_the_same(settings: Settings) -> None:
    coordinator = Coordinator(settings)
    coordinator.write("run-events", log_event("r", 1), terminal_event("r", 2), run_id="r")

    def script(command: dict[str, Any]) -> dict[str, Any] | None:
        if command["type"] == "terminal.get":
            return {"terminal": terminal_state("r")}
        return {"seq": 1, "ts": 0} if command["runId"] == "r" else None

    with Responder(settings, script), RunlaneSyncClient(settings) as client:
        assert client.log("r", "hello").seq == 1
        assert client.call("events.append", "r", {"event": {"type": "log", "line": "x"}}) == {
            "seq": 1,
            "ts": 0,
        }
        assert [event.seq for event in client.events("r")] == [1, 2]
        with client.follow_events() as events:
            assert next(events).seq == 1
        assert client.wait_terminal("r", timeout=20).result == 7
        with pytest.raises(CommandTimeout, match="runId 's'"):
            client.log("s", "x", timeout=0.5)
    with pytest.raises(ClientClosedError):
        client.log("r", "late")
