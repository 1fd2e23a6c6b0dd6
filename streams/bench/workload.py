"""The commands that the benchmarks send: `events.append` to many runs in turn, and the end of some."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import orjson
from confluent_kafka import Producer

from schemas.topics import RUN_COMMANDS
from streams.messaging.kafka_config import producer_config
from streams.settings import Settings
from streams.user_errors import UserError

COMMAND_BYTES = 230
"""Size of the value of one command, within a few bytes."""

_ENDING_SHARE = 10
_CHUNK = 1000
_QUEUE_MESSAGES = 500_000
_SEND_PATIENCE_S = 120.0
_FIRST_TS = 1_767_225_600_000

Record = tuple[bytes, bytes]
"""Key and value of a command."""


class Commands(Protocol):
    """A fixed series of commands of any kind."""

    @property
    def commands(self) -> int:
        """How many there are."""

    def records(self) -> Iterator[Record]:
        """All of them."""


@dataclass(frozen=True)
class Workload:
    """A fixed series of commands: the same one for everything that is compared."""

    commands: int
    runs: int = 2000
    first_number: int = 0
    """Number of the first command; keeps the command ids of several workloads apart."""
    ends_runs: bool = True
    """Whether every tenth run ends, with its last command."""

    @property
    def ended_runs(self) -> int:
        """How many runs end."""
        return len(range(0, min(self.runs, self.commands), _ENDING_SHARE)) if self.ends_runs else 0

    def records(self) -> Iterator[Record]:
        """All commands; the runs take turns, so that a run's commands lie far apart."""
        last_turn = self.commands - self.runs
        for index in range(self.commands):
            run, number = index % self.runs, self.first_number + index
            if self.ends_runs and run % _ENDING_SHARE == 0 and index >= last_turn:
                yield _end_command(run, number)
            else:
                yield append_command(run, command_id(number), number // self.runs)


def command_id(number: int) -> str:
    """Id of the command of this number; `command_number` reads it again."""
    return f"bench-{number:012d}"


def command_number(command_id: str) -> int:
    """The number in a command id that `command_id` made."""
    return int(command_id.rpartition("-")[2])


def append_command(run: int, command_id: str, step: int) -> Record:
    """`events.append`: eight log lines, then a progress and a status event, and so on."""
    run_id = f"bench-run-{run:06d}"
    event: dict[str, object]
    turn = step % 10
    if turn < 8:
        event = {"type": "log", "line": f"step {step:06d} of the run: rows read, checked and kept; "}
    elif turn == 8:
        event = {"type": "progress", "status": "computing", "activeNodeId": "node-7", "updatedAt": _FIRST_TS}
    else:
        event = {"type": "status", "status": "running", "logs": [f"step {step:06d} done"]}
    event["ts"] = _FIRST_TS + step
    command: dict[str, object] = {"type": "events.append", "runId": run_id, "commandId": command_id}
    command["event"] = event
    return run_id.encode(), _padded(command, event)


def _end_command(run: int, number: int) -> Record:
    run_id = f"bench-run-{run:06d}"
    command: dict[str, object] = {
        "type": "terminal.set",
        "runId": run_id,
        "commandId": command_id(number),
        "status": "completed",
        "totalRows": number,
    }
    return run_id.encode(), _padded(command, command)


def _padded(command: dict[str, object], holder: dict[str, object]) -> bytes:
    """The command's JSON, filled up in a text field of `holder`."""
    field = "line" if "line" in holder else "playName" if holder is command else "status"
    value = orjson.dumps(command)
    missing = COMMAND_BYTES - len(value) - (0 if field in holder else len(field) + 6)
    holder[field] = f"{holder.get(field, '')}{'x' * max(0, missing)}"
    return orjson.dumps(command)


def preload(
    settings: Settings,
    workload: Commands,
    done: Callable[[int], None] = lambda sent: None,
    *,
    to: str = RUN_COMMANDS.name,
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Send all commands as fast as the broker takes them; returns once each is acknowledged."""
    config = producer_config(settings, _SEND_PATIENCE_S)
    producer = Producer({**config, "linger.ms": 20, "queue.buffering.max.messages": _QUEUE_MESSAGES})
    topic = settings.name(to)
    refused: list[str] = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            refused.append(str(error))

    records = workload.records()
    sent = 0
    while chunk := list(islice(records, _CHUNK)):
        for key, value in chunk:
            while True:
                try:
                    producer.produce(topic, value, key, on_delivery=delivered, headers=list(headers))
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
        sent += len(chunk)
        done(sent)
    if producer.flush(_SEND_PATIENCE_S) or refused:
        raise UserError(f"The broker did not take the commands: {refused[:1] or 'no answer in time'}.")
