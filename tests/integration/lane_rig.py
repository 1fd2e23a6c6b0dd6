"""Drives one lane by hand on a real broker: commands in, steps at which it may die, topics to look at."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from streams import topic_admin
from streams.kafka_cluster import KafkaLaneCluster
from streams.lane import Lane, Step
from streams.lane_factory import LaneFactory, MakeCluster
from streams.partitioner import partition_for
from streams.ports import HEAL_KEY, CommandRecord, StoreBrokenError
from streams.settings import Settings
from tests.waiting import wait_until

COMMANDS = "run-commands"


class DiedError(Exception):
    """The process is gone at this point."""


@dataclass
class Rig:
    """One partition of a deployment, and the commands that a client sent to it."""

    settings: Settings
    partition: int = 0
    sent: list[str] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    """Of the commands sent, in the same order."""
    disk: int = 0
    """The disk that the next owner has."""
    _disks: int = 1
    _producer: Producer | None = None

    def run_id(self) -> str:
        """A run id that belongs to the rig's partition."""
        while True:
            run_id = f"run-{uuid.uuid4().hex[:8]}"
            if partition_for(run_id.encode(), self.settings.partitions) == self.partition:
                return run_id

    def send(
        self, run_id: str, type_: str, *, headers: list[tuple[str, bytes]] | None = None, **fields: Any
    ) -> str:
        """Produce a command; returns its id."""
        command_id = fields.pop("command_id", None) or uuid.uuid4().hex
        value = {"type": type_, "commandId": command_id, "runId": run_id, **fields}
        self.send_bytes(run_id.encode(), json.dumps(value).encode(), headers)
        self.sent.append(command_id)
        self.run_ids.append(run_id)
        return command_id

    def send_bytes(
        self, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]] | None = None
    ) -> None:
        """Produce any record to the partition's commands."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.settings.brokers, "message.max.bytes": 16 << 20, "linger.ms": 0}
            )
        self._producer.produce(
            self.settings.name(COMMANDS), value, key, partition=self.partition, headers=headers
        )
        assert self._producer.flush(30) == 0

    def address(self, correlation_id: str) -> list[tuple[str, bytes]]:
        """Headers that ask for a reply, to the rig's partition of `replies`."""
        partition = str(self.partition).encode()
        return [("correlation-id", correlation_id.encode()), ("reply-partition", partition)]

    def replies(self) -> dict[str, list[dict[str, Any]]]:
        """All visible replies to addresses of `address`, by correlation id."""
        found: dict[str, list[dict[str, Any]]] = {}
        for message in self.read("replies"):
            found.setdefault(message.key().decode(), []).append(json.loads(message.value()))
        return found

    def log(self, run_id: str, count: int = 1) -> None:
        """Send log events."""
        for _ in range(count):
            self.send(run_id, "events.append", event={"type": "log", "line": f"line {len(self.sent)}"})

    def owner(
        self,
        *,
        at_step: Callable[[Step], None] = lambda step: None,
        make_cluster: MakeCluster = KafkaLaneCluster,
        new_disk: bool = False,
        **settings: Any,
    ) -> Lane:
        """A new process that takes the partition over: an opened lane. A new disk is an empty one."""
        if new_disk:
            self.disk, self._disks = self._disks, self._disks + 1
        chosen = self.settings.model_copy(
            update={"data_dir": self.settings.data_dir / f"disk-{self.disk}", **settings}
        )
        layout = topic_admin.require_usable(chosen)
        factory = LaneFactory(chosen, layout, make_cluster)
        lane = factory.make(self.partition, at_step=at_step)
        # As the runner does it: a lane that is lost while it opens is opened again.
        for _ in range(2):
            try:
                lane.open()
                return lane
            except StoreBrokenError:
                continue
        lane.open()
        return lane

    def commands(self, lane: Lane) -> list[CommandRecord]:
        """The commands behind the lane's watermark."""
        return [record for record in self.all_commands() if record.offset > lane.watermark(COMMANDS)]

    def all_commands(self) -> list[CommandRecord]:
        """All committed commands of the partition."""
        return [
            CommandRecord(
                COMMANDS,
                self.partition,
                message.offset(),
                message.timestamp()[1],
                message.key(),
                message.value(),
                message.headers() or (),
            )
            for message in self.read(COMMANDS)
        ]

    def read(self, topic: str) -> list[Any]:
        """All committed records of the rig's partition of a topic, up to its present end."""
        at = TopicPartition(self.settings.name(topic), self.partition, 0)
        consumer = Consumer(
            {
                "bootstrap.servers": self.settings.brokers,
                "group.id": "rig",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "auto.offset.reset": "earliest",
            }
        )
        found = []
        try:
            consumer.assign([at])
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                message = consumer.poll(1.0)
                if message is None:
                    continue
                if message.error():
                    return found
                found.append(message)
        finally:
            consumer.close()
        raise AssertionError(f"{topic} could not be read to its end")

    def events(self) -> list[dict[str, Any]]:
        """All visible events of the partition."""
        records = [message for message in self.read("run-events") if message.key() != HEAL_KEY]
        return [json.loads(message.value()) for message in records]

    def assert_exactly_once(self) -> None:
        """Every command sent has exactly one event, in order, and each run's `seq` is dense."""
        # The markers of the last transaction may still be under way.
        wait_until(lambda: len(self.events()) >= len(self.sent), "as many events as commands")
        events = self.events()
        assert [event["commandId"] for event in events] == self.sent
        latest: dict[str, int] = {}
        for event in events:
            assert event["seq"] == latest.get(event["runId"], 0) + 1
            latest[event["runId"]] = event["seq"]
