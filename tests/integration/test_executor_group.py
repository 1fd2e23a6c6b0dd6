"""The consumer group of executors, over connections on which single answers are lost."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from streams import topic_admin
from streams.broker import local_broker
from streams.broker.server_config import HOST, FurtherListener
from streams.execution.dispatch_consumer import DispatchConsumer
from streams.messaging import kafka_config
from streams.settings import Settings
from tests.waiting import wait_until

PATIENCE_S = 60.0
PARTITIONS = 2
JOIN_GROUP = 11


class LosingLink:
    """Forwards all requests and answers, but for the next answer to a request of a kind; connections live on."""

    def __init__(self, listener: FurtherListener) -> None:
        self.lost = 0
        self._listener = listener
        self._lose: int | None = None
        self._carrying: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen where the broker tells clients that it is."""
        self._server = await asyncio.start_server(self._carry, HOST, self._listener.advertised_port)

    async def close(self) -> None:
        """End it with its connections."""
        if self._server is not None:
            self._server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def lose_one(self, api_key: int) -> None:
        """The next answer to such a request vanishes."""
        self._lose = api_key

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection(HOST, self._listener.port)
        kinds: dict[bytes, int] = {}
        task = asyncio.ensure_future(
            asyncio.gather(  # type: ignore[arg-type]
                self._requests(reader, broker_writer, kinds), self._answers(broker_reader, writer, kinds)
            )
        )
        self._carrying.add(task)
        try:
            await task
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self._carrying.discard(task)
            for side in (writer, broker_writer):
                side.close()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: dict[bytes, int]
    ) -> None:
        while True:
            request = await _frame(reader)
            # Length, kind, version and number of the request.
            kinds[request[8:12]] = struct.unpack(">h", request[4:6])[0]
            writer.write(request)
            await writer.drain()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kinds: dict[bytes, int]
    ) -> None:
        while True:
            answer = await _frame(reader)
            if kinds.pop(answer[4:8]) == self._lose:
                self._lose = None
                self.lost += 1
                continue
            writer.write(answer)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(struct.unpack(">i", length)[0])


class Member:
    """A member of the group, and what partitions it has."""

    def __init__(self, settings: Settings) -> None:
        config = kafka_config.member_config(settings, "executors")
        self.failures: list[BaseException] = []
        self._consumer = DispatchConsumer(
            config, settings.name("run-dispatch"), 10, lambda *_: None, self.failures.append
        )
        self._consumer.start()

    @property
    def partitions(self) -> set[int]:
        """Those that it was given."""
        return set(self._consumer._ledgers)

    async def leave(self) -> None:
        """Leave the group."""
        await asyncio.to_thread(self._consumer.close, PATIENCE_S)


@pytest_asyncio.fixture
async def linked(tmp_path: Path) -> AsyncIterator[tuple[Settings, Settings, LosingLink]]:
    """Settings of a broker of its own, the same over a link, and the link."""
    base = Settings(brokers=None, partitions=PARTITIONS, broker_dir=tmp_path / "broker")
    try:
        status = await asyncio.to_thread(local_broker.up, base, further_listeners=1)
        direct = base.model_copy(update={"brokers": status.address})
        await asyncio.to_thread(topic_admin.apply, direct)
        link = LosingLink(status.further[0])
        await link.start()
        over_link = base.model_copy(update={"brokers": f"{HOST}:{status.further[0].advertised_port}"})
        yield direct, over_link, link
        await link.close()
    finally:
        await asyncio.to_thread(local_broker.remove, base)


async def test_a_lost_answer_to_its_joining_does_not_keep_an_executor_idle(
    linked: tuple[Settings, Settings, LosingLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default the client would wait 5 minutes for the answer, as a member that the broker has long forgotten."""
    monkeypatch.setattr(kafka_config, "LONGEST_POLL_PAUSE_MS", 8_000)
    direct, over_link, link = linked
    first = Member(direct)
    members = [first]
    try:
        everything = set(range(PARTITIONS))
        await asyncio.to_thread(
            wait_until, lambda: first.partitions == everything, "the first has all", PATIENCE_S
        )
        link.lose_one(JOIN_GROUP)
        members.append(Member(over_link))
        await asyncio.to_thread(
            wait_until, lambda: all(member.partitions for member in members), "both have some", PATIENCE_S
        )
        assert link.lost == 1
        assert not [failure for member in members for failure in member.failures]
    finally:
        for member in members:
            await member.leave()
