"""The processes that are measured: workers and baselines."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import psutil

from schemas.topics import RUN_COMMANDS
from streams.child_process import ChildProcess, WorkerChild, free_port
from streams.messaging.topic_positions import Positions
from streams.settings import Settings


class Worker(WorkerChild):
    """A `runlane worker` with a data folder and a web port of its own."""

    def __init__(self, settings: Settings, folder: Path, name: str = "worker") -> None:
        """Topics, brokers and partitions are those of `settings`; the rest comes from the environment."""
        self.data_dir = folder / name
        own = {"data_dir": self.data_dir, "web_port": free_port(), "web_host": "127.0.0.1"}
        super().__init__(folder, settings.model_copy(update=own), name)

    def is_ready(self) -> bool:
        """Whether every lane that it owns serves, also when it owns none."""
        return self.health()[0]

    def watermarks(self, topic: str = RUN_COMMANDS.name) -> Positions:
        """Partition -> offset of the last command of the topic that is committed; -1 for none."""
        return {lane["partition"]: lane["watermarks"].get(topic, -1) for lane in self.health()[1]}

    def has_done(self, ends: Positions, topic: str = RUN_COMMANDS.name) -> bool:
        """Whether every command below these ends of the topic is committed, by this worker."""
        return have_done([self], ends, topic)

    def metric(self, name: str) -> float:
        """The sum of a metric of its metrics page over all labels; 0 when it is not there."""
        lines = self.page("/metrics").decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return sum(float(value) for label, value in pairs if label.partition("{")[0] == name)

    def resident_bytes(self) -> int:
        """Its resident memory."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def lose_disk(self) -> None:
        """Delete the data folder; the worker must not run."""
        shutil.rmtree(self.data_dir, ignore_errors=True)


def have_done(workers: Iterable[Worker], ends: Positions, topic: str = RUN_COMMANDS.name) -> bool:
    """Whether every command below these ends of the topic is committed, by the owners of the lanes."""
    marks: Positions = {}
    for worker in workers:
        for partition, mark in worker.watermarks(topic).items():
            marks[partition] = max(mark, marks.get(partition, -1))
    return all(marks.get(partition, -1) >= end - 1 for partition, end in ends.items())


def cpu_seconds(process: ChildProcess) -> float:
    """Processor time, user and system, of a process and its threads; 0 when it has ended."""
    return cpu_seconds_of(process.pid)


def cpu_seconds_of(pid: int) -> float:
    """Processor time, user and system, of the process of this id; 0 when it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)
