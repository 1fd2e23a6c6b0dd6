"""Runs in the simulation."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.families import run_answers, run_events, run_state
from tests.simulation.families.registry import Committed, SimulatedFamily
from tests.simulation.families.run_drafts import draft

_INVARIANTS = (
    run_events.events_and_ends,
    run_events.dispatches,
    run_state.changes,
    run_state.waits,
    run_answers.answered_once,
    run_answers.calls,
    run_answers.results_in_order,
    run_answers.retries_within_limits,
    run_answers.secrets,
)


def invariants(committed: Committed) -> Iterator[str]:
    """What is wrong with outputs and state."""
    for holds in _INVARIANTS:
        yield from holds(committed)


SIMULATED = SimulatedFamily("run", "r", draft, invariants)
