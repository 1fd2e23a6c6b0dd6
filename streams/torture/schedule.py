"""What is harmed, how, when and for how long: decided by a seed, before anything starts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

SESSION_S = 6.0
"""The session time-out of workers and executors: who is silent for longer is taken for dead."""
BROKER = "broker"
VISITOR = "visitor"


class FaultKind(StrEnum):
    """A way to harm. The names are stable: `--kind` takes them."""

    WORKER_KILLED = "worker-killed"
    WORKER_KILLED_STATE_LOST = "worker-killed-state-lost"
    WORKER_KILLED_DISK_LOST = "worker-killed-disk-lost"
    WORKER_FROZEN = "worker-frozen"
    WORKER_RESTARTED = "worker-restarted"
    WORKER_VISITS = "worker-visits"
    BROKER_KILLED = "broker-killed"
    BROKER_FROZEN = "broker-frozen"
    EXECUTOR_KILLED = "executor-killed"
    LINK_SLOW = "link-slow"
    LINK_CUT = "link-cut"
    LINK_BLACK_HOLE = "link-black-hole"
    LINK_STALLED = "link-stalled"
    LINK_ANSWERS_LOST = "link-answers-lost"
    LINK_DOUBLED = "link-doubled"
    LINK_LATE = "link-late"


@dataclass(frozen=True)
class _Recipe:
    """How a kind of fault is dosed."""

    share: int
    """How many of 60."""
    alone: int
    """How many of these come alone."""
    lasts_s: tuple[float, float]
    """From when it strikes until it is undone."""
    what: str


_RECIPES: dict[FaultKind, _Recipe] = {
    FaultKind.WORKER_KILLED: _Recipe(
        12, 3, (0, 1.5), "kill -9 of a worker, which is started again on the folder that it left"
    ),
    FaultKind.WORKER_KILLED_STATE_LOST: _Recipe(
        4, 1, (0, 1.5), "kill -9 of a worker; its lanes' stores are deleted before it starts again"
    ),
    FaultKind.WORKER_KILLED_DISK_LOST: _Recipe(
        4, 2, (0, 1.5), "kill -9 of a worker; all of its folder is deleted before it starts again"
    ),
    FaultKind.WORKER_FROZEN: _Recipe(
        4,
        2,
        (SESSION_S + 1, SESSION_S + 4),
        "SIGSTOP of a worker for longer than its session, then SIGCONT: others own its partitions when it wakes up",
    ),
    FaultKind.WORKER_RESTARTED: _Recipe(
        3, 1, (0, 1), "SIGTERM of a worker, which hands over, ends, and is started again"
    ),
    FaultKind.WORKER_VISITS: _Recipe(
        10, 3, (0.5, 3), "a further worker joins, serves for a while, and leaves by SIGTERM"
    ),
    FaultKind.BROKER_KILLED: _Recipe(
        3, 1, (0, 2), "kill -9 of the broker, which is started again on its data"
    ),
    FaultKind.BROKER_FROZEN: _Recipe(2, 1, (2, 8), "SIGSTOP of the broker, then SIGCONT"),
    FaultKind.EXECUTOR_KILLED: _Recipe(
        4, 1, (0, 1.5), "kill -9 of an executor with runs in its hands, which is started again"
    ),
    FaultKind.LINK_SLOW: _Recipe(
        2, 1, (2, 6), "everything between a process and the broker is delayed, each way, in order"
    ),
    FaultKind.LINK_CUT: _Recipe(
        2,
        1,
        (0.2, 4),
        "all connections between a process and the broker are reset, and every new one at once",
    ),
    FaultKind.LINK_BLACK_HOLE: _Recipe(
        2,
        1,
        (2, SESSION_S + 5),
        "what a process and the broker send each other vanishes, without a word; its connections are reset afterwards",
    ),
    FaultKind.LINK_STALLED: _Recipe(
        2,
        1,
        (2, SESSION_S + 5),
        "what a process and the broker send each other is held back, and delivered late",
    ),
    FaultKind.LINK_ANSWERS_LOST: _Recipe(
        2,
        1,
        (1, SESSION_S + 4),
        "requests of a process reach the broker, the answers vanish; its connections are reset afterwards",
    ),
    FaultKind.LINK_DOUBLED: _Recipe(
        2,
        1,
        (2, 6),
        "the broker gets each request twice, over two connections: the first answer is dropped, as for a client "
        "that tries again when an answer was lost",
    ),
    FaultKind.LINK_LATE: _Recipe(
        2,
        1,
        (3, 6),
        "again and again: requests of a process are held back, its connections are reset, and when it has sent them "
        "again over others, the first ones reach the broker too",
    ),
}

_LINK_DELAY_S = (0.02, 0.4)
_DELAYED = {FaultKind.LINK_SLOW, FaultKind.LINK_LATE}
_FLOWS_AGAIN_S = 3.0
_ON_LINKS_OF_WORKERS = 0.75

_ANY_WORKER = {
    FaultKind.WORKER_KILLED,
    FaultKind.WORKER_KILLED_STATE_LOST,
    FaultKind.WORKER_KILLED_DISK_LOST,
    FaultKind.WORKER_FROZEN,
    FaultKind.WORKER_RESTARTED,
}
_THE_BROKER = {FaultKind.BROKER_KILLED, FaultKind.BROKER_FROZEN}
_ONCE_ALONE_AT_LEAST = {FaultKind.WORKER_FROZEN, FaultKind.WORKER_VISITS, FaultKind.BROKER_KILLED}
"""Alone more is made sure: that a zombie meets new owners, a visitor serves, workers live without a broker."""


@dataclass(frozen=True)
class PlannedFault:
    """One fault."""

    number: int
    """From 1."""
    kind: FaultKind
    target: str
    """`worker-1`, `executor-1`, `broker`, `visitor`; of a link the process at its end."""
    after_s: float
    """Seconds after the one before struck; when one of the two is `alone`, after everything flowed again."""
    lasts_s: float
    alone: bool
    """Nothing else is harmed from when it strikes until commands of all partitions flow again."""
    delay_s: float = 0.0
    """For how long a slow link holds everything up, each way; of a late one, when the first requests arrive."""

    @property
    def label(self) -> str:
        """The kind and the target, for people."""
        return f"{self.kind} ({self.target})"


def meaning(kind: FaultKind) -> str:
    """What is done, in words."""
    return _RECIPES[kind].what


def worker_names(count: int) -> list[str]:
    """The targets that are workers."""
    return [f"worker-{number}" for number in range(1, count + 1)]


def executor_names(count: int) -> list[str]:
    """The targets that are executors."""
    return [f"executor-{number}" for number in range(1, count + 1)]


def plan(
    seed: int,
    faults: int,
    *,
    workers: int,
    executors: int,
    pace_s: float,
    alone: float = 1.0,
    kinds: Sequence[FaultKind] = tuple(FaultKind),
) -> list[PlannedFault]:
    """So many faults of these kinds, in the order in which they strike; the same for the same arguments.

    How often a kind comes does not depend on the seed; `pace_s` is the mean time from one to the next while
    neither is alone, and `alone` scales how many are, which take most of the time. Raises `ValueError` when there
    is no target for any of the kinds.
    """
    source = random.Random(f"faults/{seed}")
    usable = [
        kind for kind in FaultKind if kind in kinds and (executors or kind is not FaultKind.EXECUTOR_KILLED)
    ]
    if not usable:
        raise ValueError("there is nothing that could be harmed in these ways")
    drawn: list[tuple[FaultKind, bool]] = []
    for kind, count in _counts(faults, usable).items():
        solitary = round(alone * count * _RECIPES[kind].alone / _RECIPES[kind].share)
        if kind in _ONCE_ALONE_AT_LEAST:
            solitary = max(1, solitary)
        drawn += [(kind, number < solitary) for number in range(count)]
    source.shuffle(drawn)
    planner = _Planner(source, worker_names(workers), executor_names(executors), pace_s)
    return [planner.next(kind, alone=alone) for kind, alone in drawn]


def _counts(faults: int, kinds: Sequence[FaultKind]) -> dict[FaultKind, int]:
    """By share, largest remainder first, so that they add up."""
    total = sum(_RECIPES[kind].share for kind in kinds)
    exact = {kind: faults * _RECIPES[kind].share / total for kind in kinds}
    counts = {kind: int(share) for kind, share in exact.items()}
    by_remainder = sorted(kinds, key=lambda kind: exact[kind] - counts[kind], reverse=True)
    for kind in by_remainder[: faults - sum(counts.values())]:
        counts[kind] += 1
    return counts


class _Planner:
    """Puts faults one after another, and prefers targets that are not being harmed."""

    def __init__(
        self, source: random.Random, workers: list[str], executors: list[str], pace_s: float
    ) -> None:
        self._source = source
        self._workers = workers
        self._executors = executors
        self._pace_s = pace_s
        self._planned = 0
        self._clock = 0.0
        self._harmed_until: dict[str, float] = {}

    def next(self, kind: FaultKind, *, alone: bool) -> PlannedFault:
        """The next fault."""
        source = self._source
        after_s = source.uniform(0.2, 2 * self._pace_s - 0.2) if not alone else source.uniform(0.1, 1.0)
        if alone:
            self._clock = max([self._clock, *self._harmed_until.values()]) + _FLOWS_AGAIN_S
        self._clock += after_s
        target = self._target(kind)
        lasts_s = source.uniform(*_RECIPES[kind].lasts_s)
        delay_s = source.uniform(*_LINK_DELAY_S) if kind in _DELAYED else 0.0
        self._harmed_until[target] = self._clock + lasts_s
        if alone:
            self._clock += lasts_s + _FLOWS_AGAIN_S
        self._planned += 1
        return PlannedFault(
            self._planned, kind, target, round(after_s, 3), round(lasts_s, 3), alone, round(delay_s, 3)
        )

    def _target(self, kind: FaultKind) -> str:
        names = self._possible(kind)
        free = [name for name in names if self._harmed_until.get(name, 0.0) <= self._clock]
        return self._source.choice(free or names)

    def _possible(self, kind: FaultKind) -> list[str]:
        if kind in _THE_BROKER:
            return [BROKER]
        if kind is FaultKind.WORKER_VISITS:
            return [VISITOR]
        if kind is FaultKind.EXECUTOR_KILLED:
            return self._executors
        if kind in _ANY_WORKER or not self._executors:
            return self._workers
        return self._workers if self._source.random() < _ON_LINKS_OF_WORKERS else self._executors
