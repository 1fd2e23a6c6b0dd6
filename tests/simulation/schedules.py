"""Runs many schedules, in as many processes as there are cores, and tells what was found."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from tests.simulation.mutations.registry import mutated
from tests.simulation.world import World, note_line

CHUNK = 50
"""Schedules that a process takes at once,"""

SEARCH_CHUNK = 4
"""and when the first one that fails ends it."""

_COLLECT_EVERY = 25


@dataclass
class Failure:
    """A schedule in which something was wrong."""

    seed: int
    violations: list[str]
    notes: list[str]
    """The readable schedule."""

    def __str__(self) -> str:
        lines = [f"seed {self.seed}:", *self.notes, "", *self.violations]
        again = f"python -m tests.simulation --seed {self.seed} --trace"
        return "\n".join([*lines, "", f"Replay it, call by call: {again}"])


@dataclass
class Summary:
    """What many schedules came to."""

    schedules: int = 0
    failures: list[Failure] = field(default_factory=list)
    seconds: float = 0.0
    tally: Counter[str] = field(default_factory=Counter)
    """How often things happened."""

    def add(self, other: Summary) -> None:
        """Add what another process did."""
        self.schedules += other.schedules
        self.failures += other.failures
        self.tally += other.tally

    def __str__(self) -> str:
        per_second = self.schedules / max(self.seconds, 0.001)
        happened = ", ".join(f"{number:,} {what}" for what, number in sorted(self.tally.items()))
        return (
            f"{self.schedules:,} schedules in {self.seconds:.0f} s ({per_second:.0f} per second), "
            f"{len(self.failures)} failed: {happened}"
        )


def run_seed(
    seed: int,
    *,
    mutation: str | None = None,
    on_note: Callable[[str], None] | None = None,
    traces_calls: bool = False,
) -> World:
    """Live through one schedule; the world's `violations` tell what is wrong."""
    world = World(seed, on_note, traces_calls=traces_calls)
    with mutated(mutation) if mutation is not None else nullcontext():
        world.run()
    return world


def run_chunk(first: int, count: int, mutation: str | None, stop_at_first: bool) -> Summary:
    """Live through some schedules in this process."""
    summary = Summary()
    gc.disable()
    for seed in range(first, first + count):
        world = run_seed(seed, mutation=mutation)
        summary.schedules += 1
        summary.tally += world.tally()
        if world.violations:
            notes = [note_line(note) for note in world.notes]
            summary.failures.append(Failure(seed, world.violations, notes))
            if stop_at_first:
                break
        if seed % _COLLECT_EVERY == 0:
            gc.collect()
    gc.enable()
    return summary


def _begin() -> None:
    # Beside them run tests whose brokers and workers have to keep up.
    os.nice(10)
    # What is imported stays: no collection has to look at it.
    gc.freeze()


@contextmanager
def processes(jobs: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """Processes for schedules: one per core; with a fixed hash seed, so that sets have the same order everywhere."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("spawn")
    try:
        count = jobs or os.cpu_count() or 1
        with ProcessPoolExecutor(count, mp_context=context, initializer=_begin) as pool:
            yield pool
    finally:
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before


def run_many(
    pool: ProcessPoolExecutor,
    first: int,
    count: int | None,
    *,
    seconds: float | None = None,
    mutation: str | None = None,
    stop_at_first: bool = False,
    on_progress: Callable[[Summary], None] = lambda summary: None,
) -> Summary:
    """Live through `count` schedules (None: without end), for at most so many seconds.

    `stop_at_first`: begin nothing more once a schedule has failed; the failure with the lowest seed comes first.
    """
    summary, started = Summary(), time.monotonic()
    workers = pool._max_workers  # type: ignore[attr-defined]
    todo: set[Future[Summary]] = set()
    position, end = first, None if count is None else first + count
    while True:
        is_over = (seconds is not None and time.monotonic() - started > seconds) or (
            stop_at_first and bool(summary.failures)
        )
        while not is_over and len(todo) < 2 * workers and (end is None or position < end):
            size = SEARCH_CHUNK if stop_at_first else CHUNK
            if end is not None:
                size = min(size, end - position)
            todo.add(pool.submit(run_chunk, position, size, mutation, stop_at_first))
            position += size
        if not todo:
            break
        done, todo = wait(todo, return_when=FIRST_COMPLETED)
        for future in done:
            summary.add(future.result())
        summary.seconds = time.monotonic() - started
        on_progress(summary)
    summary.failures.sort(key=lambda failure: failure.seed)
    return summary
