"""One crash trial: a prefix, load on it, what is visible of it, and the verdict of the checker at the end."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from pathlib import Path

from tests.contract.topic_reader import TopicReader
from tests.crash.checker import violations
from tests.crash.history import History
from tests.crash.load import Load
from tests.crash.reading import read_history
from tests.worker_process import WorkerProcess

PATIENCE_S = 120.0
SHOWN_VIOLATIONS = 20


class Trial:
    """Load on the topics of a prefix while a test harms the workers or the broker."""

    def __init__(
        self, brokers: str, prefix: str, partitions: int, folder: Path, *, per_second: int, seed: int
    ) -> None:
        self.brokers, self.prefix, self.partitions = brokers, prefix, partitions
        self.workers: list[WorkerProcess] = []
        self._folder = folder
        self.events = TopicReader(brokers, {"run-events": f"{prefix}-run-events" if prefix else "run-events"})
        self.load = Load(brokers, prefix, partitions, per_second=per_second, seed=seed)

    def worker(self) -> WorkerProcess:
        """A further worker, not started; its folder is its own."""
        folder = self._folder / f"worker-{len(self.workers)}-{uuid.uuid4().hex[:6]}"
        worker = WorkerProcess(self.brokers, self.prefix, folder, partitions=self.partitions)
        self.workers.append(worker)
        return worker

    def close(self) -> None:
        """End what still runs."""
        for worker in self.workers:
            if worker.alive:
                worker.kill()
        self.events.close()

    def wait_for_progress(self, more: int = 100) -> None:
        """Wait until an observer sees so many events more in total, and one more in every partition."""
        before = self._seen()
        total = sum(before)
        self.wait_for(
            lambda: (
                sum(now := self._seen()) >= total + more
                and all(new > old for new, old in zip(now, before, strict=True))
            ),
            f"{more} more events in all {self.partitions} partitions",
        )

    def _seen(self) -> list[int]:
        return [self.events.count("run-events", partition) for partition in range(self.partitions)]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; fails with the workers' logs."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                logs = "\n".join(worker.explain("a worker") for worker in self.workers)
                raise AssertionError(f"not in {PATIENCE_S:.0f} s: {what}\n{logs}")
            time.sleep(0.05)

    def finish(self) -> History:
        """Stop the load, wait until everything that was sent is done, and check all of it."""
        self.load.stop()
        # What is forwarded arrives before the second markers are sent.
        for _ in range(2):
            self.wait_for_markers()
        history = self.history()
        found = violations(history)
        shown = "\n".join(map(str, found[:SHOWN_VIOLATIONS]))
        assert not found, f"{len(found)} violations in {len(self.load.sent)} commands, the first:\n{shown}"
        return history

    def history(self) -> History:
        """All that is on the topics now."""
        return read_history(self.brokers, self.prefix, self.partitions, self.load.sent)

    def wait_for_markers(self) -> None:
        """Wait until everything is done that was sent before, but for what is forwarded."""
        markers = set(self.load.send_markers())
        looked_at = 0

        def all_visible() -> bool:
            nonlocal looked_at
            fresh = self.events.records("run-events")[looked_at:]
            looked_at += len(fresh)
            markers.difference_update(record.json()["commandId"] for record in fresh)
            return not markers

        self.wait_for(all_visible, "everything that was sent is visible")
