"""Writes make a run known (spec wire 4)."""

from __future__ import annotations

from agents.machine import Decision
from agents.run.tables import HEADS
from schemas.stored import RunHead, replace


def make_known(decision: Decision, run_id: str, head: RunHead) -> None:
    """Something is stored about the run that is not its head: one that nobody knew is running from now on."""
    if head.status is None:
        decision.put(HEADS, (run_id,), replace(head, status="running"))
