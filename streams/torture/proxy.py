"""What stands between one process and the broker: forwards requests and answers, or harms them.

It knows of Kafka's protocol only that a connection carries requests and answers with a length in front, one
answer for each request, in order.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from enum import Enum, auto

HOST = "127.0.0.1"
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_IN_FLIGHT = 64
_STREAM_LIMIT = 1024 * 1024
_ANSWER_PATIENCE_S = 1.0


class LinkFault(Enum):
    """What a link does to the connections over it. New connections are treated as those that there are."""

    SLOW = auto()
    """Everything is delayed, each way, in order."""
    CUT = auto()
    """Connections are reset, new ones at once."""
    BLACK_HOLE = auto()
    """Both directions vanish without a word. What has lost something is reset when the link heals."""
    STALLED = auto()
    """Both directions are held back and delivered when the link heals."""
    ANSWERS_LOST = auto()
    """Requests arrive, answers vanish. What has lost something is reset when the link heals."""
    DOUBLED = auto()
    """The broker gets each request twice, the first time over a second connection.

    The first answer is dropped, the second is passed on, and only then the next request is sent: what a broker
    sees of a client that tries again because an answer was lost. Copies never come late, behind the client's
    next request: that is `LATE`.
    """
    LATE = auto()
    """Requests on some of the connections are held back. When the link heals, these connections are reset, and
    some time later the requests reach the broker all the same: when the process has long sent them again over
    other connections.
    """


class Link:
    """A port that forwards to a port of the broker. It is part of the event loop that starts it."""

    def __init__(self, port: int, broker_port: int, source: random.Random) -> None:
        """`source` scatters the delays of a slow link."""
        self.port = port
        self.broker_port = broker_port
        self.fault: LinkFault | None = None
        self.changed = asyncio.Event()
        """Set when the fault in force is another."""
        self.requests = 0
        """Passed on so far, copies not counted."""
        self.copies = 0
        """Requests that the broker got a second time."""
        self.held_back = asyncio.Event()
        """Set when a request is held back, to be late."""
        self._source = source
        self._delay_s = 0.0
        self._connections: set[_Connection] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The bootstrap server for the process, host:port."""
        return f"{HOST}:{self.port}"

    @property
    def is_used(self) -> bool:
        """Whether there is a connection over it."""
        return bool(self._connections)

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accepted, HOST, self.port, limit=_STREAM_LIMIT)

    async def close(self) -> None:
        """Listen no more, and reset all connections."""
        if self._server is not None:
            self._server.close()
        self._set(None)
        for delivery in self._late:
            delivery.cancel()
        for connection in list(self._connections):
            connection.reset()
        await asyncio.gather(*(connection.ended.wait() for connection in list(self._connections)))

    def impose(self, fault: LinkFault, delay_s: float = 0.0, *, late_share: float = 0.5) -> None:
        """Harm connections from now on.

        `delay_s` is for how long a slow link holds everything up, more or less, and how long after they were
        held back late requests reach the broker; `late_share` of the connections are late.
        """
        self._delay_s = delay_s
        self._set(fault)
        for connection in list(self._connections):
            if fault is LinkFault.CUT:
                connection.reset()
            connection.is_held = fault is LinkFault.LATE and self._source.random() < late_share

    def heal(self) -> None:
        """Harm no more; connections that have lost something are reset."""
        self._set(None)
        for connection in list(self._connections):
            if connection.has_lost:
                connection.reset()

    def delay_s(self) -> float:
        """How long the next request or answer is held up."""
        return self._delay_s * self._source.uniform(0.5, 1.5)

    def deliver_late(self, requests: list[bytes], broker: _Streams) -> None:
        """Send these to the broker after the delay, and drop what it answers."""
        delivery = asyncio.create_task(_deliver(requests, broker, self.delay_s()))
        self._late.add(delivery)
        delivery.add_done_callback(self._late.discard)

    def _set(self, fault: LinkFault | None) -> None:
        self.fault = fault
        self.changed.set()
        self.changed = asyncio.Event()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self, reader, writer)
        self._connections.add(connection)
        try:
            await connection.carry()
        finally:
            self._connections.discard(connection)


class _Connection:
    """One connection of the process, and the one to the broker that stands for it."""

    def __init__(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.has_lost = False
        """Something that was sent over it has vanished, or is on a detour."""
        self.is_held = False
        """It is one of those whose requests are late."""
        self.ended = asyncio.Event()
        self._link = link
        self._client: _Streams = (reader, writer)
        self._broker: _Streams | None = None
        self._second: _Streams | None = None
        self._late: list[bytes] = []
        self._unanswered = 0
        self._answered = asyncio.Event()
        self._task = asyncio.current_task()
        self._was_reset = False

    def reset(self) -> None:
        """End both sides by RST."""
        self._was_reset = True
        if self._task is not None:
            self._task.cancel()

    async def carry(self) -> None:
        """Forward until one side ends, or it is reset."""
        try:
            await self._carry()
        except (OSError, asyncio.IncompleteReadError):
            self._was_reset = True
        except asyncio.CancelledError:
            # Only `reset` cancels it.
            if not self._was_reset:
                raise
        finally:
            if self._late and self._broker is not None:
                self._link.deliver_late(self._late, self._broker)
                self._broker = None
            for side in (self._client, self._broker, self._second):
                if side is not None:
                    _end(side[1], by_reset=self._was_reset)
            self.ended.set()

    async def _carry(self) -> None:
        link = self._link
        while link.fault in (LinkFault.STALLED, LinkFault.BLACK_HOLE):
            # A connection that is being made in a black hole is reset by `heal`.
            self.has_lost = link.fault is LinkFault.BLACK_HOLE
            await link.changed.wait()
        if link.fault is LinkFault.CUT:
            self._was_reset = True
            return
        self._broker = await asyncio.open_connection(HOST, link.broker_port, limit=_STREAM_LIMIT)
        pumps = [
            asyncio.create_task(self._pump(self._client[0], self._broker[1], is_request=True)),
            asyncio.create_task(self._pump(self._broker[0], self._client[1], is_request=False)),
        ]
        try:
            done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in done:
                pump.result()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        """Pass frames on in order, each as the link wants it at the moment when it is its turn."""
        arrived: asyncio.Queue[tuple[float, bytes | None]] = asyncio.Queue(_IN_FLIGHT)
        reading = asyncio.create_task(self._read(reader, arrived, is_request=is_request))
        try:
            while True:
                at, frame = await arrived.get()
                if not await self._may_pass(at, is_request=is_request):
                    if self._link.fault is LinkFault.LATE and frame is not None:
                        self._late.append(frame)
                        self._link.held_back.set()
                    continue
                if frame is None:
                    return
                if is_request:
                    await self._copy_if_doubled(frame)
                    self._unanswered += 1
                    self._link.requests += 1
                writer.write(frame)
                await writer.drain()
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(
        self,
        reader: asyncio.StreamReader,
        arrived: asyncio.Queue[tuple[float, bytes | None]],
        *,
        is_request: bool,
    ) -> None:
        """Frames, and None for the end of the stream, with the time of their arrival."""
        clock = asyncio.get_running_loop().time
        while True:
            try:
                frame = await _read_frame(reader)
            except (OSError, asyncio.IncompleteReadError):
                frame = None
            if not is_request:
                self._unanswered -= 1
                self._answered.set()
            await arrived.put((clock(), frame))
            if frame is None:
                return

    async def _may_pass(self, arrived: float, *, is_request: bool) -> bool:
        """Wait for as long as the link holds it up; False: it vanishes."""
        link = self._link
        while link.fault is LinkFault.STALLED:
            await link.changed.wait()
        if (
            link.fault is LinkFault.BLACK_HOLE
            or (link.fault is LinkFault.ANSWERS_LOST and not is_request)
            or (link.fault is LinkFault.LATE and is_request and self.is_held)
        ):
            self.has_lost = True
            return False
        if link.fault is LinkFault.SLOW:
            wait_s = arrived + link.delay_s() - asyncio.get_running_loop().time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
        return True

    async def _copy_if_doubled(self, frame: bytes) -> None:
        link = self._link
        if link.fault is not LinkFault.DOUBLED:
            return
        while self._unanswered > 0:
            self._answered.clear()
            await self._answered.wait()
        try:
            if self._second is None:
                self._second = await asyncio.open_connection(HOST, link.broker_port, limit=_STREAM_LIMIT)
            self._second[1].write(frame)
            await _read_frame(self._second[0])
            link.copies += 1
        except (OSError, asyncio.IncompleteReadError):
            if self._second is not None:
                _end(self._second[1], by_reset=True)
                self._second = None


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next request or answer with its length in front. Raises `IncompleteReadError` at the stream's end."""
    length = await reader.readexactly(4)
    (size,) = struct.unpack(">i", length)
    return length + await reader.readexactly(size)


async def _deliver(requests: list[bytes], broker: _Streams, delay_s: float) -> None:
    reader, writer = broker
    try:
        await asyncio.sleep(delay_s)
        for request in requests:
            writer.write(request)
            await writer.drain()
            # One after another, but an answer may have been lost.
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_PATIENCE_S):
                    await _read_frame(reader)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        _end(writer, by_reset=False)


def _end(writer: asyncio.StreamWriter, *, by_reset: bool) -> None:
    if by_reset:
        with suppress(OSError):
            # Closing without lingering sends RST instead of FIN.
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
        writer.transport.abort()
    else:
        writer.close()
