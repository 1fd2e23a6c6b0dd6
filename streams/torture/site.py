"""What a torture harms: a broker of its own, workers and executors, each behind a link of its own."""

from __future__ import annotations

import asyncio
import random
import urllib.error
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from schemas.topics import REPLIES
from streams import topic_admin
from streams.broker import local_broker
from streams.child_process import ChildProcess, ExecutorChild, WorkerChild, free_port
from streams.messaging.cluster_questions import ClusterQuestions
from streams.messaging.kafka_config import connection_config
from streams.settings import Settings
from streams.torture import executed_runs
from streams.torture.outages import Outages
from streams.torture.proxy import Link
from streams.torture.schedule import VISITOR, executor_names, worker_names

_CALL_S = 5.0
_ALTER_S = 60.0


class Victim:
    """A process that is harmed, and that nothing but us may end."""

    def __init__(self, process: ChildProcess, link: Link | None) -> None:
        self.process = process
        self.link = link
        """None: it talks to the broker directly."""
        self.is_meant_to_run = False
        """False while a fault has it ended: then its end says nothing."""
        self.in_hand = asyncio.Lock()
        """Held by the fault that harms it: one at a time."""

    @property
    def name(self) -> str:
        """What the schedule calls it."""
        return self.process.name

    def start(self) -> None:
        """Start the process; from now on it has to run."""
        self.process.start()
        self.is_meant_to_run = True


class WorkerVictim(Victim):
    """A worker."""

    process: WorkerChild

    def lanes(self) -> int:
        """How many lanes it owns and serves; 0 when it is not ready."""
        ready, lanes = self.process.health()
        return len(lanes) if ready else 0

    def is_live(self) -> bool:
        """Whether it says that it can do its work, or get back to it by itself."""
        try:
            self.process.page("/health/live")
        except (urllib.error.HTTPError, OSError):
            return False
        return True


class Site:
    """The broker, the topics and the processes of one torture. It belongs to the event loop that opens it."""

    def __init__(
        self, base: Settings, folder: Path, *, workers: int, executors: int, source: random.Random
    ) -> None:
        """`base` gives the prefix, the partitions and the settings of every process."""
        self.folder = folder
        self.settings = base.model_copy(update={"brokers": None, "broker_dir": folder / "broker"})
        """Those of whoever talks to the broker directly; they name it once the site is open."""
        self.workers: dict[str, WorkerVictim] = {}
        self.executors: dict[str, Victim] = {}
        self.visitor: WorkerVictim
        self.broker_in_hand = asyncio.Lock()
        self.outages = Outages()
        self._broker_settings = self.settings
        self._worker_names = worker_names(workers)
        self._executor_names = executor_names(executors)
        self._source = source

    @property
    def victims(self) -> dict[str, Victim]:
        """All processes but the broker, by name."""
        return {**self.workers, **self.executors, VISITOR: self.visitor}

    async def open(self, step: Callable[[str], None]) -> None:
        """Start everything, and wait until the workers serve. Raises `UserError` when something does not start."""
        names = [*self._worker_names, *self._executor_names]
        broker = await asyncio.to_thread(
            local_broker.up, self._broker_settings, step, further_listeners=len(names)
        )
        self.settings = self.settings.model_copy(update={"brokers": broker.address})
        await asyncio.to_thread(topic_admin.apply, self.settings)
        await asyncio.to_thread(self._keep_replies)
        for name, listener in zip(names, broker.further, strict=True):
            link = Link(listener.advertised_port, listener.port, self._source)
            await link.start()
            if name in self._worker_names:
                self.workers[name] = self._worker(name, link)
            else:
                settings = self.settings.model_copy(update={"brokers": link.address})
                process = ExecutorChild(self.folder, settings, executed_runs.PLACE, name)
                self.executors[name] = Victim(process, link)
        self.visitor = self._worker(VISITOR, None)
        step(f"starting {len(self.workers)} workers and {len(self.executors)} executors")
        for victim in (*self.workers.values(), *self.executors.values()):
            victim.start()
        for worker in self.workers.values():
            await asyncio.to_thread(worker.process.wait_ready)

    @property
    def links(self) -> list[Link]:
        """All links."""
        return [victim.link for victim in self.victims.values() if victim.link is not None]

    async def stop(self) -> list[str]:
        """End the workers and executors by SIGTERM; returns which did not end with 0, in words."""
        found = []
        for victim in (*self.executors.values(), *self.workers.values()):
            victim.is_meant_to_run = False
            code = await asyncio.to_thread(victim.process.stop)
            if code != 0:
                found.append(f"{victim.name} ended with code {code} at the end:\n{victim.process.tail()}")
        return found

    async def close(self) -> None:
        """End everything at once, by SIGKILL, also what is frozen; nothing when it was not opened."""
        for victim in [*self.workers.values(), *self.executors.values(), *self._visitors()]:
            victim.is_meant_to_run = False
            victim.process.end_at_once()
            if victim.link is not None:
                await victim.link.close()
        await asyncio.to_thread(local_broker.kill, self._broker_settings)

    def executors_at_work(self) -> int:
        """How many members have partitions in the group of the executors (blocking)."""
        group = self.settings.name(self.settings.executor_group)
        try:
            # The broker may have been restarted since an earlier question, so no client is kept.
            members = ClusterQuestions(connection_config(self.settings), _CALL_S).ask(
                lambda admin: (
                    admin.describe_consumer_groups([group], request_timeout=_CALL_S)[group].result().members
                )
            )
        except KafkaException:
            return 0
        return sum(bool(member.assignment.topic_partitions) for member in members)

    def kill_broker(self) -> None:
        """End the broker by SIGKILL (blocking)."""
        local_broker.kill(self._broker_settings)

    def start_broker(self) -> None:
        """Start the broker again, and wait until it can be used (blocking)."""
        local_broker.up(self._broker_settings)

    def freeze_broker(self) -> None:
        """Stop the broker by SIGSTOP."""
        local_broker.freeze(self._broker_settings)

    def thaw_broker(self) -> None:
        """Let the broker go on."""
        local_broker.thaw(self._broker_settings)

    def _keep_replies(self) -> None:
        """Replies are kept for an hour, and a torture may take longer than that until it reads them all."""
        admin = AdminClient(connection_config(self.settings))
        entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(
            ResourceType.TOPIC, self.settings.name(REPLIES.name), incremental_configs=[entry]
        )
        for altered in admin.incremental_alter_configs([topic], request_timeout=_ALTER_S).values():
            altered.result()

    def _visitors(self) -> list[WorkerVictim]:
        return [self.visitor] if hasattr(self, "visitor") else []

    def _worker(self, name: str, link: Link | None) -> WorkerVictim:
        own = {
            "brokers": self.settings.brokers if link is None else link.address,
            "data_dir": self.folder / name,
            "web_host": "127.0.0.1",
            "web_port": free_port(),
        }
        process = WorkerChild(self.folder, self.settings.model_copy(update=own), name)
        return WorkerVictim(process, link)
