"""What goes wrong in a schedule: how often each call is hit, and what befalls whole nodes, the broker and clocks."""

from __future__ import annotations

from dataclasses import dataclass, fields
from random import Random

PAUSES_S = (0.0005, 0.004, 0.03, 0.2, 1.5)
FREEZES_S = (0.3, 2.0, 7.0, 20.0, 70.0)

EVENTS = (
    "rebalance",
    "kill",
    "ambush",
    "power loss",
    "stop",
    "lose disk",
    "old disk",
    "break disk",
    "freeze",
    "deaf",
    "broker crash",
    "broker away",
    "clock",
    "leap",
    "retention",
    "compaction",
    "client transaction",
    "absence",
    "topics anew",
)
"""What befalls the world from time to time; see `tests.simulation.chaos`."""


@dataclass
class Rates:
    """Probabilities, per call or per chunk; 0 for what does not happen in this schedule."""

    pause: float = 0.0
    kill: float = 0.0
    kill_at_step: float = 0.0
    freeze: float = 0.0
    lost: float = 0.0
    """A call of the lane fails for good."""
    request_lost: float = 0.0
    request_late: float = 0.0
    answer_lost: float = 0.0
    store_breaks: float = 0.0
    chunk_lost: float = 0.0
    chunk_again: float = 0.0
    chunk_late: float = 0.0
    marker_late: float = 0.0
    rebalance_again: float = 0.0
    """Right after a rebalance, as in a rolling restart."""
    sent_again: float = 0.0
    bug: float = 0.0
    refused: float = 0.0
    garbage: float = 0.0
    wrong_partition: float = 0.0


_USUAL = Rates(
    pause=0.08,
    kill=0.004,
    kill_at_step=0.03,
    freeze=0.003,
    lost=0.004,
    request_lost=0.05,
    request_late=0.05,
    answer_lost=0.06,
    store_breaks=0.01,
    chunk_lost=0.1,
    chunk_again=0.08,
    chunk_late=0.15,
    marker_late=0.3,
    rebalance_again=0.3,
    sent_again=0.12,
    bug=0.05,
    refused=0.03,
    garbage=0.05,
    wrong_partition=0.06,
)


@dataclass
class FaultPlan:
    """What may go wrong in one schedule: few kinds of faults each time, so that no kind hides another."""

    rates: Rates
    events: list[str]
    """Kinds of events, to choose from."""
    event_gap_s: float
    """Between two of them, on average."""


def draw_plan(random: Random) -> FaultPlan:
    """A plan for one schedule."""
    share = random.choice([0.2, 0.4, 0.7])
    rates = Rates()
    for field in fields(Rates):
        if random.random() < share:
            setattr(rates, field.name, getattr(_USUAL, field.name) * random.choice([0.5, 1.0, 2.0]))
    count = random.choice([1, 2, 3, 5, 8])
    return FaultPlan(rates, random.sample(EVENTS, count), random.choice([1.0, 2.0, 4.0]))
