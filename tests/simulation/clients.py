"""What clients send: commands of all families, sent again, to wrong partitions, wrong, or in transactions."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, NamedTuple

from schemas.envelope import Headers
from schemas.topics import REPLIES
from streams.partitioner import partition_for
from tests.simulation.failing_machine import BUG
from tests.simulation.families.registry import Answer, simulated_families

if TYPE_CHECKING:
    from tests.simulation.world import World

REFUSED = "refused-"
"""The broker refuses what a command with such an id emits."""

REFUSED_MARK = b'"commandId":"' + REFUSED.encode()

_GAPS_S = (0.0, 0.0, 0.0, 0.002, 0.05, 0.4, 1.5)
_KEYS = 5
_NEWEST = 6


class Sent(NamedTuple):
    """A record that a client sent."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Clients:
    """All clients."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = random = world.random
        families = simulated_families()
        self._families = random.choice([families, [random.choice(families)]])
        """Those of this schedule."""
        self._keys = sorted(random.sample(range(_KEYS), random.choice([2, 3, _KEYS])))
        self._count = self._random.choice([10, 25, 40, 60])
        self._number = 0
        self._sent: list[Sent] = []
        self._key_of: dict[str, str] = {}
        """By command id."""
        self._open: dict[str, int] = {}
        """Transactional id -> epoch."""

    @property
    def sent(self) -> int:
        """How many commands were sent."""
        return self._number

    async def run(self) -> None:
        """Send all commands."""
        for _ in range(self._count):
            await asyncio.sleep(self._random.choice(_GAPS_S))
            self.send(1)

    def send(self, count: int) -> None:
        """Send so many commands at once."""
        for _ in range(count):
            self._append(self._draw())

    async def use_transaction(self) -> None:
        """Send some commands in a transaction, which is committed or aborted later; sometimes much later."""
        random, kafka = self._random, self._world.kafka
        writer = f"client-{self._number}"
        if writer in self._open:
            return
        self._open[writer] = epoch = kafka.init(writer)
        kafka.begin(writer, epoch)
        for _ in range(random.randint(1, 4)):
            sent = self._draw()
            kafka.produce(writer, epoch, (sent.topic, sent.partition), sent.key, sent.value, sent.headers)
        self._world.note(writer, "has commands in an open transaction")
        await asyncio.sleep(random.choice([0.01, 0.5, 4.0]))
        self._end(writer, commit=random.random() < 0.5)

    def end_transactions(self) -> None:
        """Abort what is open."""
        for writer in list(self._open):
            self._end(writer, commit=False)

    async def start_over(self) -> None:
        """The topics were made anew, without what had been sent: some of it is sent again, from the first on."""
        self._open.clear()
        for sent in self._sent[: self._random.randint(0, len(self._sent))]:
            await asyncio.sleep(self._random.choice(_GAPS_S[:5]))
            if not self._world.is_troubled:
                return
            self._append(sent)

    def _end(self, writer: str, *, commit: bool) -> None:
        epoch = self._open.pop(writer, None)
        if epoch is not None:
            self._world.note(writer, "commits" if commit else "aborts")
            self._world.kafka.end(writer, epoch, commit=commit)

    def _append(self, sent: Sent) -> None:
        self._world.kafka.append((sent.topic, sent.partition), sent.key, sent.value, sent.headers)

    def _draw(self) -> Sent:
        """The next record of some client."""
        rates, hits, random = self._world.rates, self._world.hits, self._random
        self._number += 1
        if self._sent and hits(rates.sent_again):
            sent = random.choice(self._sent)
            self._world.note("client", f"sends again: {sent.value!r}")
            return sent
        simulated = random.choice(self._families)
        commands = simulated.family.commands
        keys = [f"{simulated.key_prefix}{number}" for number in self._keys]
        key, body = simulated.draft(random, keys, self._answered)
        command_id = f"c{self._number}"
        if hits(rates.bug):
            command_id = f"{BUG}{self._number}"
        elif hits(rates.refused):
            command_id = f"{REFUSED}{self._number}"
        headers: list[tuple[str, bytes | None]] = []
        if random.random() < 0.6:
            headers = [
                ("correlation-id", b"x%d" % self._number),
                ("reply-partition", b"%d" % random.randrange(self._world.partitions)),
            ]
        self._key_of[command_id] = key
        value = json.dumps({**body, "commandId": command_id}).encode()
        key_bytes: bytes | None = key.encode()
        if hits(rates.garbage):
            key_bytes, value, headers = self._spoil(key, value, headers)
        partition = partition_for(key.encode(), self._world.partitions)
        if hits(rates.wrong_partition):
            partition = (partition + 1) % self._world.partitions
        sent = Sent(commands.topic, partition, key_bytes, value, headers)
        self._sent.append(sent)
        self._world.note("client", f"sends to {partition}: {value[:120]!r}")
        return sent

    def _answered(self) -> list[Answer]:
        """What the newest replies of each partition accept."""
        answers = []
        for partition in range(self._world.partitions):
            log = self._world.kafka.log((REPLIES.name, partition))
            readable = [record for record in log.records if record.is_readable and record.offset < log.stable]
            for record in readable[-_NEWEST:]:
                reply = json.loads(record.value or b"{}")
                key = self._key_of.get(reply.get("commandId") or "")
                if key is not None and reply.get("ok"):
                    answers.append(Answer(key, reply["commandId"], reply["result"]))
        return answers

    def _spoil(
        self, key: str, value: bytes, headers: list[tuple[str, bytes | None]]
    ) -> tuple[bytes | None, bytes, list[tuple[str, bytes | None]]]:
        kind = self._random.randrange(5)
        if kind == 0:
            return key.encode(), value[:-2], headers
        if kind == 1:
            return key.encode() + b"x", value, headers
        if kind == 2:
            return None, value, headers
        if kind == 3:
            return key.encode(), value[:-1] + b',"x":"' + b"x" * 2000 + b'"}', headers
        return key.encode(), value, headers[:1]
