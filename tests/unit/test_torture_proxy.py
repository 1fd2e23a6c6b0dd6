"""The link between a process and the broker, with a real peer that answers what it gets."""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from streams.child_process import free_port
from streams.torture.proxy import HOST, Link, LinkFault

PATIENCE_S = 30.0


class Peer:
    """Answers each request with its number among all that it got, and keeps them with their connections."""

    def __init__(self) -> None:
        self.port = free_port()
        self.got: list[tuple[int, bytes]] = []
        """(number of the connection, request)."""
        self.arrived = asyncio.Event()
        self._connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    def die(self) -> None:
        """Listen no more, and end all connections."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def wait_for(self, count: int) -> None:
        """Wait until so many requests have come."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.got) < count:
                self.arrived.clear()
                await self.arrived.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = self._connections
        self._connections += 1
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                self.got.append((number, await reader.readexactly(size)))
                self.arrived.set()
                writer.write(framed(b"answer %d" % len(self.got)))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            writer.close()


@dataclass
class Client:
    """One connection to the link."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, request: bytes) -> None:
        """Send a request."""
        self.writer.write(framed(request))

    async def answer(self) -> bytes:
        """The next answer."""
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and wait for its answer."""
        self.send(request)
        return await self.answer()

    async def is_reset(self) -> bool:
        """Whether the connection ends by RST; waits for its end."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self.reader.read(1000):
                    pass
        except ConnectionResetError:
            return True
        return False


def framed(content: bytes) -> bytes:
    """With the length in front."""
    return struct.pack(">i", len(content)) + content


@pytest_asyncio.fixture
async def peer() -> AsyncIterator[Peer]:
    """A peer that listens."""
    peer = Peer()
    await peer.start()
    yield peer
    peer.die()


@pytest_asyncio.fixture
async def link(peer: Peer) -> AsyncIterator[Link]:
    """A link to the peer."""
    link = Link(free_port(), peer.port, random.Random(1))
    await link.start()
    yield link
    await link.close()


async def connect(link: Link) -> Client:
    """A new connection over the link."""
    return Client(*await asyncio.open_connection(HOST, link.port))


async def test_without_a_fault_everything_passes_in_order(link: Link, peer: Peer) -> None:
    first, second = await connect(link), await connect(link)
    large = bytes(range(256)) * 20_000
    for request in (b"one", large, b""):
        first.send(request)
    assert [await first.answer() for _ in range(3)] == [b"answer 1", b"answer 2", b"answer 3"]
    assert await second.ask(b"two") == b"answer 4"
    assert [request for _, request in peer.got] == [b"one", large, b"", b"two"]
    assert (link.requests, link.copies) == (4, 0)


async def test_the_end_of_either_side_is_passed_on(link: Link, peer: Peer) -> None:
    client, other = await connect(link), await connect(link)
    assert await client.ask(b"one") == b"answer 1"
    client.writer.write_eof()
    assert not await client.is_reset()
    await other.ask(b"two")
    peer.die()
    async with asyncio.timeout(PATIENCE_S):
        assert await other.reader.read() == b""
    # Nobody listens behind the link any more.
    assert await (await connect(link)).is_reset()


async def test_a_slow_link_delays_each_way_and_keeps_the_order(link: Link) -> None:
    client = await connect(link)
    await client.ask(b"warm")
    clock = asyncio.get_running_loop().time
    link.impose(LinkFault.SLOW, 0.2)
    began = clock()
    for number in range(20):
        client.send(b"%d" % number)
    assert [await client.answer() for _ in range(20)] == [b"answer %d" % n for n in range(2, 22)]
    # Half of the delay at least, each way.
    assert clock() - began >= 0.2


async def test_a_cut_link_resets_what_there_is_and_what_comes(link: Link, peer: Peer) -> None:
    client = await connect(link)
    await client.ask(b"one")
    link.impose(LinkFault.CUT)
    assert await client.is_reset()
    late = await connect(link)
    late.send(b"two")
    assert await late.is_reset()
    link.heal()
    assert await (await connect(link)).ask(b"three") == b"answer 2"
    assert [request for _, request in peer.got] == [b"one", b"three"]


async def test_a_black_hole_swallows_both_ways_and_resets_what_has_lost(link: Link, peer: Peer) -> None:
    speaking, silent = await connect(link), await connect(link)
    await speaking.ask(b"one")
    await silent.ask(b"two")
    link.impose(LinkFault.BLACK_HOLE)
    speaking.send(b"lost")
    made_meanwhile = await connect(link)
    made_meanwhile.send(b"lost too")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await speaking.reader.read(1)
    link.heal()
    assert await speaking.is_reset()
    assert await made_meanwhile.is_reset()
    assert await silent.ask(b"three") == b"answer 3"
    assert [request for _, request in peer.got] == [b"one", b"two", b"three"]


async def test_a_stalled_link_delivers_late(link: Link, peer: Peer) -> None:
    client = await connect(link)
    await client.ask(b"one")
    link.impose(LinkFault.STALLED)
    client.send(b"two")
    made_meanwhile = await connect(link)
    made_meanwhile.send(b"three")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.reader.read(1)
    assert len(peer.got) == 1
    link.heal()
    assert {await client.answer(), await made_meanwhile.answer()} == {b"answer 2", b"answer 3"}


async def test_lost_answers_are_of_requests_that_arrived(link: Link, peer: Peer) -> None:
    client = await connect(link)
    await client.ask(b"one")
    link.impose(LinkFault.ANSWERS_LOST)
    client.send(b"two")
    await peer.wait_for(2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await client.reader.read(1)
    link.heal()
    assert await client.is_reset()


async def test_a_doubled_request_arrives_twice_and_the_second_answer_counts(link: Link, peer: Peer) -> None:
    client = await connect(link)
    assert await client.ask(b"before") == b"answer 1"
    link.impose(LinkFault.DOUBLED)
    # Sent at once: yet no copy may come behind the next request.
    for request in (b"a", b"b", b"c"):
        client.send(request)
    assert [await client.answer() for _ in range(3)] == [b"answer 3", b"answer 5", b"answer 7"]
    own = peer.got[0][0]
    assert [request for _, request in peer.got] == [b"before", b"a", b"a", b"b", b"b", b"c", b"c"]
    assert [number == own for number, _ in peer.got] == [True, False, True, False, True, False, True]
    link.heal()
    assert await client.ask(b"after") == b"answer 8"
    assert (link.requests, link.copies) == (5, 3)


async def test_late_requests_arrive_when_their_connection_is_long_gone(link: Link, peer: Peer) -> None:
    clients = [await connect(link) for _ in range(12)]
    for client in clients:
        await client.ask(b"warm")
    link.impose(LinkFault.LATE, 0.3)
    for number, client in enumerate(clients):
        client.send(b"a%d" % number)
        client.send(b"b%d" % number)
    await peer.wait_for(len(clients) + 2)
    with pytest.raises(TimeoutError):
        # Some are held back.
        async with asyncio.timeout(0.3):
            await peer.wait_for(3 * len(clients))
    held_back = 3 * len(clients) - len(peer.got)
    assert 0 < held_back < 2 * len(clients)
    number_due = len(peer.got) + 1
    link.heal()
    assert await (await connect(link)).ask(b"anew") == b"answer %d" % number_due
    await peer.wait_for(3 * len(clients) + 1)
    late = peer.got[-held_back:]
    assert {request for _, request in peer.got} == {b"warm", b"anew"} | {
        b"%s%d" % (kind, number) for kind in (b"a", b"b") for number in range(len(clients))
    }
    for connection, request in late:
        # In their order, on the connection to the peer that they were sent over.
        same = [other for number, other in peer.got if number == connection]
        assert same == [b"warm", b"a" + request[1:], b"b" + request[1:]]
    resets = 0
    for client in clients:
        try:
            await client.answer()
            await client.answer()
        except ConnectionResetError:
            resets += 1
    assert resets == held_back // 2


async def test_closing_resets_everything_also_what_is_held_up(link: Link) -> None:
    clients = [await connect(link) for _ in range(3)]
    for client in clients:
        await client.ask(b"one")
    link.impose(LinkFault.STALLED)
    clients[0].send(b"two")
    await link.close()
    assert [await client.is_reset() for client in clients] == [True, True, True]
    with pytest.raises(ConnectionRefusedError):
        await connect(link)
