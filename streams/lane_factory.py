"""Makes lanes from settings: the same lane for a worker, a test and a tool."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from agents.families import FAMILIES
from streams.kafka_calls import LaneKafkaConfig
from streams.kafka_cluster import KafkaLaneCluster
from streams.lane import FaultLimits, Lane, RestoreProgress, Step
from streams.lane_log import LaneLog
from streams.lane_rules import LaneRules
from streams.messaging.kafka_config import address_config
from streams.ports import LaneCluster
from streams.rocks_store import RocksStores
from streams.settings import Settings
from streams.topic_admin import TopicLayout

T = TypeVar("T")

MakeCluster = Callable[[LaneKafkaConfig, int, Callable[[], bool]], LaneCluster]


class Turns:
    """What the lanes of one process compute, one piece at a time: the interpreter runs no more anyway.

    One thread does what takes long: several in turn would take half the time to hand over from core to core. What is
    brief is done where it is needed: to hand it over, and its result back, would take longer than the work.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lane-compute")

    def __call__(self, work: Callable[[], T], /, *, is_brief: bool) -> T:
        """Do the work when it is its turn; returns its result."""
        if is_brief:
            return self._in_turn(work)
        return self._thread.submit(self._in_turn, work).result()

    def _in_turn(self, work: Callable[[], T]) -> T:
        with self._turn:
            return work()


class LaneFactory:
    """Makes the lanes of one worker; their stores share one memory budget and one folder."""

    def __init__(
        self,
        settings: Settings,
        layout: TopicLayout,
        make_cluster: MakeCluster = KafkaLaneCluster,
    ) -> None:
        """`layout` is what `topic_admin.require_usable` found."""
        self.topics = tuple(family.commands.topic for family in FAMILIES)
        """The command topics that this version serves, without prefix."""
        self.folder: Path = settings.data_dir / (settings.prefix or "default")
        """This worker's folder for this prefix; lanes keep their state below it."""
        self._layout = layout
        self._make_cluster = make_cluster
        self._turns = Turns()
        self._faults = FaultLimits(settings.fault_halt_share, settings.fault_halt_minimum)
        self._kafka = LaneKafkaConfig(
            address_config(settings), layout.partitions, settings.name, settings.transaction_timeout_ms
        )
        self._rules = LaneRules(
            families={family.commands.topic: family for family in FAMILIES},
            partitions=layout.partitions,
            max_command_bytes=settings.max_command_bytes,
            repeat_limit=settings.repeat_window_commands,
            repeat_ms=settings.repeat_window_ms,
            full_name=settings.name,
        )
        self._stores = RocksStores(
            self.folder / "state",
            block_cache_mb=settings.block_cache_mb,
            write_buffer_mb=settings.write_buffer_mb,
            lanes=layout.partitions,
        )

    def make(
        self,
        partition: int,
        stopping: Callable[[], bool] = lambda: False,
        on_restore: Callable[[RestoreProgress], None] = lambda progress: None,
        at_step: Callable[[Step], None] = lambda step: None,
    ) -> Lane:
        """A closed lane. `stopping()` tells whether to give up waiting for an absent broker."""
        return Lane(
            partition,
            LaneLog(partition, self._make_cluster(self._kafka, partition, stopping)),
            self._stores,
            self._rules,
            faults=self._faults,
            tombstones_kept_ms=self._layout.deletions_kept_ms,
            compute=self._turns,
            on_restore=on_restore,
            at_step=at_step,
        )
