"""Load from a bare producer: many runs, every kind of command, in the background, and a note of all that was sent."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.contract.bare_client import command, key_in_partition, new_id, partition_of
from tests.crash.history import SentCommand

OPEN_RUNS = 200
DELIVERY_PATIENCE_S = 120.0

Headers = Sequence[tuple[str, bytes]]


class Load:
    """Sends commands at a rate until it is stopped; all it sends is in `sent` once the broker has it."""

    def __init__(
        self, brokers: str, prefix: str, partitions: int, *, per_second: int, seed: int, aborts: bool = True
    ) -> None:
        """`aborts`: now and then a transaction of the client's own is aborted."""
        self.sent: list[SentCommand] = []
        self._partitions = partitions
        self._topic = f"{prefix}-run-commands" if prefix else "run-commands"
        self._per_second = per_second
        self._random = random.Random(seed)
        self._runs = [_Run(self._random) for _ in range(OPEN_RUNS)]
        self._refused: list[KafkaError] = []
        self._stopping = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": brokers,
            "linger.ms": 5,
            "queue.buffering.max.messages": 1_000_000,
            "reconnect.backoff.max.ms": 500,
        }
        # In the order in which they were sent, and once, also when the broker goes away.
        patience_ms = int(DELIVERY_PATIENCE_S * 1000)
        self._producer = Producer({**settings, "enable.idempotence": True, "message.timeout.ms": patience_ms})
        self._aborting = Producer({**settings, "transactional.id": new_id("aborts")}) if aborts else None
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._problem: BaseException | None = None

    def start(self) -> Load:
        """Begin to send."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more, and wait until the broker has everything."""
        self._stopping.set()
        self._thread.join(DELIVERY_PATIENCE_S)
        if self._problem is not None:
            raise AssertionError("the load broke off") from self._problem
        left = self._producer.flush(DELIVERY_PATIENCE_S)
        assert left == 0, f"the broker did not take {left} commands"
        assert not self._refused, f"the broker refused commands: {self._refused[0]}"

    def send_markers(self) -> list[str]:
        """Send one command of a run of its own to each partition; returns their ids."""
        markers = []
        for partition in range(self._partitions):
            run_id = key_in_partition(partition, self._partitions, "marker")
            markers.append(new_id("marker"))
            value = command("events.append", run_id, markers[-1], event=_log("marker"))
            self._produce(run_id.encode(), value, partition, [])
        self._producer.flush(DELIVERY_PATIENCE_S)
        return markers

    def _run(self) -> None:
        try:
            if self._aborting is not None:
                self._aborting.init_transactions(DELIVERY_PATIENCE_S)
            started, count = time.monotonic(), 0
            while not self._stopping.is_set():
                due = int((time.monotonic() - started) * self._per_second)
                while count < due:
                    self._send_one()
                    count += 1
                    if self._aborting is not None and count % self._per_second == 0:
                        self._abort_some(self._aborting)
                self._producer.poll(0.005)
        except BaseException as problem:
            self._problem = problem

    def _send_one(self) -> None:
        chosen = self._random.randrange(OPEN_RUNS)
        run = self._runs[chosen]
        kind = self._random.random()
        key = run.run_id.encode()
        owner = partition_of(key, self._partitions)
        if kind < 0.01:
            self._produce(*self._bad(run, owner))
            return
        value = run.next_command() if kind > 0.06 else self._special(run, kind)
        partition = owner
        if kind > 0.99 and self._partitions > 1:
            partition = (owner + 1 + self._random.randrange(self._partitions - 1)) % self._partitions
        self._produce(key, value, partition, self._reply_address())
        if run.is_over:
            self._runs[chosen] = _Run(self._random)

    def _special(self, run: _Run, kind: float) -> bytes:
        """A question, or a command that comes again."""
        if kind < 0.03 or not run.values:
            return command("events.list", run.run_id, new_id(), afterSeq=0, limit=3)
        return self._random.choice(run.values)

    def _bad(self, run: _Run, owner: int) -> tuple[bytes | None, bytes | None, int, Headers]:
        key = run.run_id.encode()
        value = self._random.choice(
            [
                b"not JSON",
                None,
                command("no.such", run.run_id, new_id()),
                command("events.append", f"{run.run_id}-other", new_id(), event=_log("x")),
            ]
        )
        return key, value, owner, self._reply_address()

    def _reply_address(self) -> Headers:
        if self._random.random() > 0.1:
            return []
        partition = self._random.randrange(self._partitions)
        return [("reply-partition", str(partition).encode()), ("correlation-id", new_id().encode())]

    def _produce(self, key: bytes | None, value: bytes | None, partition: int, headers: Headers) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._refused.append(error)
                return
            self.sent.append(SentCommand(partition, message.offset(), key, value, tuple(headers)))

        self._producer.produce(
            self._topic, value, key, partition=partition, headers=list(headers), on_delivery=delivered
        )

    def _abort_some(self, producer: Producer) -> None:
        producer.begin_transaction()
        for _ in range(3):
            key = _Run(self._random).run_id.encode()
            value = command("events.append", key.decode(), new_id("aborted"), event=_log("aborted"))
            producer.produce(self._topic, value, key, partition=partition_of(key, self._partitions))
        producer.flush(DELIVERY_PATIENCE_S)
        producer.abort_transaction(DELIVERY_PATIENCE_S)


class _Run:
    """A run of the load: what it sends next."""

    def __init__(self, source: random.Random) -> None:
        self.run_id = f"run/{source.getrandbits(64):016x}"
        self.values: list[bytes] = []
        """What was sent, for repeats."""
        self.is_over = False
        self._submits = source.random() < 0.5
        self._length = source.randrange(5, 120)
        self._ends = source.choice(["terminal.set", "terminal.set", "run.cancel"])

    def next_command(self) -> bytes:
        """The next command of the run; after its end, three that come too late."""
        number = len(self.values)
        if number == 0 and self._submits:
            value = command("run.submit", self.run_id, new_id(), name="load")
        elif number == self._length:
            end = {"status": "completed"} if self._ends == "terminal.set" else {}
            value = command(self._ends, self.run_id, new_id(), **end)
        elif number % 7 == 3:
            event = {"type": "progress", "status": f"at {number}"}
            value = command("events.append", self.run_id, new_id(), event=event)
        else:
            value = command("events.append", self.run_id, new_id(), event=_log(f"line {number}"))
        self.values.append(value)
        self.is_over = number >= self._length + 3
        return value


def _log(line: str) -> dict[str, str]:
    return {"type": "log", "line": line}
