"""One poison message stops a partition: it is read, it fails, it is read again.

Elsewhere: a record that cannot be decoded, a handler that raises, a write that the broker refuses, each retried for
ever. Here each costs itself. `tests/fuzz` looks for more of them.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from agents.families import FAMILIES
from agents.machine import Decision, FiredTimer, View
from agents.run.machine import RunMachine
from agents.run.tables import EVENTS, HEADS
from schemas import dead_letters, envelope
from schemas.errors import ErrorCode
from schemas.run_commands import RUN_COMMANDS
from streams import receiving
from streams.lane import FaultLimits, Lane
from streams.lane_log import LaneLog
from streams.lane_rules import LaneRules
from streams.ports import CommandRecord, OutRecord, RecordsRefusedError
from streams.rocks_store import RocksStores
from streams.settings import Settings
from tests.contract.bare_client import BareClient, command, key_in_partition
from tests.integration.lane_rig import Rig
from tests.simulation.memory_cluster import MemoryLaneCluster, PerfectNetwork
from tests.simulation.memory_kafka import MemoryKafka
from tests.worker_process import WorkerProcess

NOW = 1_700_000_000_000


def test_records_that_no_client_should_send_one_after_the_other(
    worker: WorkerProcess, client: BareClient
) -> None:
    run_id = key_in_partition(1, client.partitions)
    key = run_id.encode()
    value = command("events.append", run_id, "c", event={"type": "log", "line": "x"})
    nested = b'{"type":"events.append","commandId":"n","runId":' + b"[" * 100_000
    poisons: list[Callable[[], object]] = [
        lambda: client.send(None, key=None, partition=1),
        lambda: client.send(None, key=key),
        lambda: client.send(b"\xff\xfe\x00", key=b"\xff\xfe", partition=1),
        lambda: client.send(nested, key=key),
        lambda: client.send(b"\0" * (24 << 20), key=key, compression="gzip"),
        lambda: client.send(b"{" + b" " * (20 << 20) + b"}", key=key, compression="lz4"),
        lambda: client.send(b"{}", key=b"k" * (6 << 20), partition=1, compression="zstd"),
        lambda: client.send(value, key=key, headers=[("h", b"v")] * 20_000),
        lambda: client.send(value, key=key, headers=[("h", b"v" * (6 << 20))], compression="gzip"),
        lambda: client.send_raw(value, key=key, headers=[(b"\xff\xfe", b"v"), (b"a\0b", None)], partition=1),
        lambda: client.send_raw(b"", key=b"", headers=[(b"", b"")] * 3, partition=1),
        lambda: client.send_raw(value, key=key, headers=[(b"correlation-id", None)], partition=1),
        lambda: client.send(value, key=b"of another partition", partition=1),
    ]
    for number, send in enumerate(poisons, start=1):
        send()
        next_id = key_in_partition(1, client.partitions)
        assert client.append_log(next_id, f"after poison {number}")["seq"] == 1
    assert worker.alive
    assert worker.get("/health/ready")[0] == 200
    assert 'runlane_commands_total{outcome="applied"}' in worker.get("/metrics")[1]
    assert "runlane_lanes_lost_total 0.0" in worker.get("/metrics")[1]


def test_a_record_that_the_broker_refuses_costs_one_command(make_settings: Any) -> None:
    settings: Settings = make_settings(partitions=1)
    _set_topic(settings, "run-events", "max.message.bytes", "4000")
    rig = Rig(settings)
    run_id = rig.run_id()
    rig.log(run_id, 2)
    refused = rig.send(run_id, "events.append", event={"type": "log", "line": _incompressible(20_000)})
    rig.log(run_id, 2)
    rig.sent.remove(refused)

    lane = rig.owner()
    _process_all(lane, lambda: rig.commands(lane))
    lane.close()
    rig.assert_exactly_once()
    (letter,) = rig.read("dead-letters")
    headers = dict(letter.headers())
    assert headers[dead_letters.CODE] == ErrorCode.OUTPUT_TOO_LARGE.encode()
    assert headers[dead_letters.OFFSET] == b"2"


def test_a_bug_costs_one_command_and_leaves_a_traceback(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = RunMachine.decide

    def buggy(self: RunMachine, request: Any, view: Any) -> Any:
        if request.command.command_id == poison:
            decide(self, request, view)
            raise ZeroDivisionError("a planted bug")
        return decide(self, request, view)

    monkeypatch.setattr(RunMachine, "decide", buggy)
    run_id = rig.run_id()
    rig.log(run_id)
    poison = rig.send(run_id, "events.append", event={"type": "log", "line": "x"})
    rig.log(run_id)
    lane = rig.owner()
    lane.process(rig.commands(lane))
    lane.close()
    rig.sent.remove(poison)
    rig.assert_exactly_once()
    (letter,) = rig.read("dead-letters")
    headers = dict(letter.headers())
    assert headers[dead_letters.CODE] == ErrorCode.INTERNAL_ERROR.encode()
    assert b"ZeroDivisionError" in headers[dead_letters.TRACEBACK]


class MemoryLane:
    """A lane on a Kafka in memory, whose broker refuses what `refuses(record)` says."""

    def __init__(self, folder: Path, refuses: Callable[[OutRecord], bool] = lambda record: False) -> None:
        self.kafka = MemoryKafka(1, now=lambda: NOW)
        cluster = MemoryLaneCluster(self.kafka, 0, PerfectNetwork(), refuses=refuses)
        self._commands: list[CommandRecord] = []
        self.lane = Lane(
            0,
            LaneLog(0, cluster),
            RocksStores(folder, block_cache_mb=8, write_buffer_mb=8, lanes=1),
            LaneRules(
                families={family.commands.topic: family for family in FAMILIES},
                partitions=1,
                max_command_bytes=1 << 20,
                repeat_limit=1000,
                repeat_ms=1 << 40,
                full_name=str,
            ),
            faults=FaultLimits(0.5, 100),
            tombstones_kept_ms=1 << 40,
            wall_clock=lambda: NOW,
        )
        self.lane.open()

    def send(self, type_: str, run_id: str, *, at: int = NOW, **fields: Any) -> None:
        """A command arrives; its id is its offset."""
        offset = len(self._commands)
        headers = (("reply-partition", b"0"), ("correlation-id", b"%d" % offset))
        value = command(type_, run_id, str(offset), **fields)
        self._commands.append(
            CommandRecord(RUN_COMMANDS.topic, 0, offset, at, run_id.encode(), value, headers)
        )

    def process(self, timers_until: int | None = None) -> None:
        """Process all that arrived, and fire timers, as a worker would."""
        _process_all(
            self.lane, lambda: self._commands[self.lane.watermark(RUN_COMMANDS.topic) + 1 :], timers_until
        )

    def read(self, topic: str) -> list[Any]:
        """All visible records of a topic."""
        return list(self.kafka.log((topic, 0)).committed())

    def letters(self) -> list[tuple[bytes | None, bytes | None, bytes | None]]:
        """Key, code and message of every dead letter."""
        headers = [(record.key, dict(record.headers)) for record in self.read("dead-letters")]
        return [(key, of[dead_letters.CODE], of[dead_letters.MESSAGE]) for key, of in headers]


def test_a_bug_in_reading_costs_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = envelope.read_envelope

    def buggy(commands: Any, key: Any, *args: Any, **limits: Any) -> Any:
        if key == b"poison":
            raise RecursionError("a planted bug")
        return read(commands, key, *args, **limits)

    monkeypatch.setattr(receiving, "read_envelope", buggy)
    lane = MemoryLane(tmp_path)
    for run_id in ("before", "poison", "after"):
        lane.send("run.cancel", run_id)
    lane.process()
    assert [record.key for record in lane.read("run-terminals")] == [b"before", b"after"]
    assert [letter[:2] for letter in lane.letters()] == [(b"poison", b"INTERNAL_ERROR")]


def test_a_bug_in_reading_leaves_nothing_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PlantedError(Exception):
        pass

    def buggy(*args: Any, **limits: Any) -> Any:
        raise PlantedError

    monkeypatch.setattr(receiving, "read_envelope", buggy)
    lane = MemoryLane(tmp_path)
    lane.send("run.cancel", "poison")
    lane.process()
    assert [letter[1] for letter in lane.letters()] == [b"INTERNAL_ERROR"]
    gc.collect()
    assert [left for left in gc.get_objects() if isinstance(left, PlantedError)] == []


@pytest.mark.parametrize("what", ["record", "key"])
def test_a_change_that_cannot_be_written_costs_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    decide = RunMachine.decide

    def buggy(self: RunMachine, request: Any, view: View) -> Decision:
        decision = decide(self, request, view)
        if request.key == "poison":
            if what == "record":
                decision.changes.append((HEADS, ("poison",), object()))
            else:
                decision.put(EVENTS, ("poison", -1), b"{}")
        return decision

    monkeypatch.setattr(RunMachine, "decide", buggy)
    lane = MemoryLane(tmp_path)
    for run_id in ("before", "poison", "after"):
        lane.send("run.cancel", run_id)
    lane.process()
    assert [record.key for record in lane.read("run-terminals")] == [b"before", b"after"]
    ((key, code, message),) = lane.letters()
    assert (key, code) == (b"poison", b"INTERNAL_ERROR")
    assert b"while writing" in (message or b"")
    replies = [json.loads(record.value or b"") for record in lane.read("replies")]
    assert [(reply["commandId"], reply["ok"]) for reply in replies] == [
        ("0", True),
        ("1", False),
        ("2", True),
    ]


def test_a_timer_that_raises_costs_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fire = RunMachine.fire

    def buggy(self: RunMachine, timer: FiredTimer, view: View) -> Decision:
        if timer.key == "poison":
            raise ZeroDivisionError("a planted bug")
        return fire(self, timer, view)

    monkeypatch.setattr(RunMachine, "fire", buggy)
    lane = MemoryLane(tmp_path)
    for run_id in ("before", "poison", "after"):
        lane.send("events.list", run_id, timeoutMs=100)
    lane.process()
    lane.process(NOW + 100)
    assert [record.key for record in lane.read("replies")] == [b"2", b"0"]
    assert [letter[:2] for letter in lane.letters()] == [(b"poison", b"INTERNAL_ERROR")]
    lane.process(NOW + 10_000)
    assert len(lane.letters()) == 1


@pytest.mark.parametrize("with_commands", [False, True])
def test_a_timer_whose_outputs_the_broker_refuses_costs_itself_and_no_command(
    tmp_path: Path, with_commands: bool
) -> None:
    lane = MemoryLane(tmp_path, refuses=lambda record: record.topic == "replies" and record.key == b"1")
    for run_id in ("before", "poison", "after"):
        lane.send("events.list", run_id, timeoutMs=100)
    lane.process()
    if with_commands:
        for run_id in ("one", "two", "three"):
            lane.send("run.cancel", run_id, at=NOW + 200)
    lane.process(NOW + 200)
    assert [record.key for record in lane.read("replies")][:2] == [b"2", b"0"]
    ((key, code, message),) = lane.letters()
    assert (key, code) == (b"poison", b"OUTPUT_TOO_LARGE")
    assert (message or b"").startswith(b"timer wait:1: ")
    ended = [record.key for record in lane.read("run-terminals")]
    assert ended == ([b"one", b"two", b"three"] if with_commands else [])

    lane.send("run.cancel", "later", at=NOW + 300)
    lane.process(NOW + 300)
    assert lane.read("run-terminals")[-1].key == b"later"
    assert len(lane.letters()) == 1


def _process_all(
    lane: Lane, commands: Callable[[], list[CommandRecord]], timers_until: int | None = None
) -> None:
    """Process as the runner does: a lane that is lost is opened again."""
    for _ in range(8):
        try:
            if taken := commands():
                lane.process(taken)
            if timers_until is not None:
                lane.process((), timers_until)
        except RecordsRefusedError:
            lane.open()
        else:
            return
    raise AssertionError("the lane is stuck")


def _incompressible(size: int) -> str:
    return "".join(hashlib.sha256(b"%d" % n).hexdigest() for n in range(size // 64))


def _set_topic(settings: Settings, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, settings.name(topic), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": settings.brokers})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
