"""The lanes of one worker: opened and closed as partitions come and go, watched, and asked how they are."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from streams.allocator import return_free_memory
from streams.batch import BatchCounts
from streams.cluster_watch import ClusterWatch
from streams.inbox import Chunk
from streams.lane import Lane, RestoreProgress
from streams.lane_runner import BatchLimits, LaneRunner, LaneState, Seeker
from streams.metrics import Metrics

_log = logging.getLogger(__name__)

_WATCH_EVERY_S = 1.0
_ASK_CLUSTER_EVERY_S = 5.0
_RESTORE_REPORT_S = 2.0
_OPEN_THREADS = 8


class Positions(Seeker, Protocol):
    """What the host asks of the consumer."""

    def delivered(self, topic: str, partition: int) -> int | None:
        """Offset of the last record handed out."""

    def end(self, topic: str, partition: int) -> int | None:
        """End offset of the partition as of the last fetch, open transactions included."""


LaneFactory = Callable[[int, Callable[[], bool], Callable[[RestoreProgress], None]], Lane]
"""(partition, stopping, on_restore) -> a closed lane."""


class LaneHost:
    """Owns the lanes. All methods belong to the event loop. Implements `streams.faust_adapter.LaneRouter`."""

    def __init__(
        self,
        topics: tuple[str, ...],
        make_lane: LaneFactory,
        positions: Positions,
        metrics: Metrics,
        *,
        limits: BatchLimits,
        max_pending: int,
        max_commits: int,
        stall_alarm_s: float,
        cluster: ClusterWatch,
    ) -> None:
        self.changed = asyncio.Event()
        self.is_assigned = False
        """The group has given this worker its partitions, be it none."""
        self._topics = topics
        self._make_lane = make_lane
        self._positions = positions
        self._metrics = metrics
        self._limits = limits
        self._max_pending = max_pending
        self._stall_alarm_s = stall_alarm_s
        self._cluster = cluster
        self._cluster_problem: str | None = None
        self.must_restart = False
        """The topics went and came back: only a new process finds its way."""
        self._commits = asyncio.Semaphore(max_commits)
        self._commit_threads = ThreadPoolExecutor(max_commits, thread_name_prefix="lane-commit")
        self._open_threads = ThreadPoolExecutor(_OPEN_THREADS, thread_name_prefix="lane-open")
        self._runners: dict[int, LaneRunner] = {}
        self._owned: set[int] = set()
        self._releases: set[asyncio.Task[None]] = set()
        self._watches: list[asyncio.Task[None]] = []
        self._missing: dict[tuple[str, int], int] = {}
        self._stands: dict[tuple[str, int], tuple[int, int, float]] = {}
        self._stalled: dict[tuple[str, int], float] = {}

    async def assign(self, partitions: Iterable[int]) -> None:
        """The group gave this worker these partition numbers; all others are someone else's."""
        await self.quiesce()
        self._owned = set(partitions)
        for partition, runner in self._runners.items():
            if partition not in self._owned and runner.state is not LaneState.CLOSED:
                self._background(runner.release())
        for partition in sorted(self._owned):
            runner = self._runners.get(partition) or self._new_runner(partition)
            self._runners[partition] = runner
            runner.start()
        self._stands.clear()
        self._stalled.clear()
        self.is_assigned = True
        if not self._watches:
            self._watches = [
                asyncio.ensure_future(self._watch_lanes()),
                asyncio.ensure_future(self._watch_cluster()),
            ]
        _log.info("owns partitions %s", sorted(self._owned))

    async def quiesce(self) -> None:
        """Finish the batches in flight, drop what waits, and take nothing more until the next assignment."""
        self._owned = set()
        await asyncio.gather(*(runner.stop() for runner in self._runners.values()))

    async def close(self) -> None:
        """Hand over: finish what is in flight, then release stores and producers."""
        for watch in self._watches:
            watch.cancel()
        await self.quiesce()
        await asyncio.gather(*self._releases, *(runner.release() for runner in self._runners.values()))
        self._commit_threads.shutdown(wait=False)
        self._open_threads.shutdown(wait=False)

    def wants(self, topic: str, partition: int) -> bool:
        """Whether the lane is open and has room for more commands of this topic."""
        runner = self._runners.get(partition)
        return (
            runner is not None
            and runner.state is LaneState.SERVING
            and not runner.is_stopping
            and runner.inbox.pending < self._max_pending
        )

    def watermarks(self) -> dict[tuple[str, int], int]:
        """(topic, partition) -> offset of the last command that is done, for every lane that is open."""
        return {
            (topic, partition): runner.lane.watermark(topic)
            for partition, runner in self._runners.items()
            if runner.is_open
            for topic in self._topics
        }

    def out_of_range(self, topic: str, partition: int) -> None:
        """The log does not reach down to the lane's watermark."""
        if runner := self._runners.get(partition):
            runner.out_of_range(topic)

    def route(self, partition: int, chunk: Chunk) -> None:
        """Give a fetched chunk to its lane."""
        if runner := self._runners.get(partition):
            runner.put(chunk)

    def problems(self) -> list[str]:
        """Why the worker is not ready, one sentence each; empty when every owned lane serves."""
        if not self.is_assigned:
            return ["waiting for the consumer group to assign partitions"]
        found = [self._cluster_problem] if self._cluster_problem else []
        for partition in sorted(self._owned):
            runner = self._runners[partition]
            if runner.state is not LaneState.SERVING:
                found.append(
                    f"lane {partition} is {runner.state}{_restored(runner)}: {runner.reason}".rstrip(": ")
                )
        for (topic, partition), seconds in sorted(self._stalled.items()):
            found.append(
                f"{topic} partition {partition} stands still for {seconds:.0f} s while its end moves on: "
                "a client's or a lane's transaction may hang there"
            )
        return found

    def lanes(self) -> list[dict[str, Any]]:
        """The owned lanes as JSON, for the health page."""
        return [
            {
                "partition": partition,
                "state": self._runners[partition].state.value,
                "reason": self._runners[partition].reason,
                "watermarks": self._runners[partition].lane.watermarks,
                "pending": self._runners[partition].inbox.pending,
                "restored": _restored(self._runners[partition]).strip(),
            }
            for partition in sorted(self._owned)
        ]

    @property
    def is_halted(self) -> bool:
        """A lane has halted; only a restart helps."""
        return any(self._runners[p].state is LaneState.HALTED for p in self._owned)

    def _new_runner(self, partition: int) -> LaneRunner:
        stopping: Callable[[], bool] = lambda: runner.is_stopping  # noqa: E731
        reported = time.monotonic()

        def on_restore(progress: RestoreProgress) -> None:
            nonlocal reported
            runner.restore = progress
            now = time.monotonic()
            if now - reported > _RESTORE_REPORT_S or progress.position >= progress.end:
                reported = now
                _log.info("lane %d%s", partition, _restored(runner))

        lane = self._make_lane(partition, stopping, on_restore)
        runner = LaneRunner(
            lane,
            self._topics,
            self._positions,
            self._limits,
            commits=self._commits,
            commit_threads=self._commit_threads,
            open_threads=self._open_threads,
            on_progress=self._progressed,
            on_state=self._state_changed,
        )
        return runner

    def _progressed(self, partition: int, counts: BatchCounts, seconds: float) -> None:
        self._metrics.batch(counts, seconds)
        self.changed.set()

    def _state_changed(self, partition: int, state: LaneState, reason: str) -> None:
        for other in LaneState:
            self._metrics.lane_state.labels(str(partition), other.value).set(other is state)
        if state is LaneState.LOST:
            self._metrics.lanes_lost.inc()
        if state is LaneState.SERVING and (restore := self._runners[partition].restore):
            self._metrics.restored.inc(restore.records)
            return_free_memory()
        self.changed.set()

    def _background(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._releases.add(task)
        task.add_done_callback(self._releases.discard)

    async def _watch_cluster(self) -> None:
        while True:
            await asyncio.sleep(_ASK_CLUSTER_EVERY_S)
            loop = asyncio.get_running_loop()
            problem = await loop.run_in_executor(self._open_threads, self._cluster.problem)
            if problem != self._cluster_problem:
                _log.log(
                    logging.ERROR if problem else logging.INFO, "%s", problem or "the cluster is well again"
                )
            self._cluster_problem = problem
            if problem is None and self._cluster.topics_changed and not self.must_restart:
                _log.critical("the topics were made anew under this worker; it ends, to be started again")
                self.must_restart = True
                os.kill(os.getpid(), signal.SIGTERM)

    async def _watch_lanes(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_EVERY_S)
            now = time.monotonic()
            for partition in self._owned:
                runner = self._runners[partition]
                for topic in self._topics:
                    self._find_lost_chunk(runner, topic)
                    self._find_stall(runner, topic, now)

    def _find_lost_chunk(self, runner: LaneRunner, topic: str) -> None:
        """A lost last chunk makes no gap: compare what was handed out with what was taken."""
        at = (topic, runner.partition)
        delivered = self._positions.delivered(*at)
        head = runner.inbox.head(topic)
        idle = runner.state is LaneState.SERVING and not runner.is_busy and not runner.inbox.pending
        if not idle or delivered is None or head is None or delivered <= head:
            self._missing.pop(at, None)
        elif self._missing.get(at) == delivered:
            del self._missing[at]
            self._metrics.reread.inc()
            runner.seek_again(topic)
        else:
            self._missing[at] = delivered

    def _find_stall(self, runner: LaneRunner, topic: str, now: float) -> None:
        at = (topic, runner.partition)
        labels = (topic, str(runner.partition))
        end = self._positions.end(*at)
        if end is None or runner.state is not LaneState.SERVING:
            return
        head = runner.lane.watermark(topic)
        self._metrics.lag.labels(*labels).set(max(0, end - 1 - head))
        seen = self._stands.get(at)
        if seen is None or seen[0] != head or end <= head + 1:
            self._stands[at] = (head, end, now)
            self._stalled.pop(at, None)
        elif end > seen[1] and now - seen[2] > self._stall_alarm_s:
            if at not in self._stalled:
                _log.error("%s partition %d stands still while its end moves on", topic, runner.partition)
            self._stalled[at] = now - seen[2]
        self._metrics.stalled.labels(*labels).set(at in self._stalled)


def _restored(runner: LaneRunner) -> str:
    progress = runner.restore
    if progress is None:
        return ""
    share = (
        100
        if progress.end <= progress.start
        else (progress.position - progress.start) * 100 // (progress.end - progress.start)
    )
    return f" restored {progress.records:,} records ({min(share, 100)}%)"
