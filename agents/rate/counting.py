"""What is counted of a bucket, for its metrics: all that was decided, and nothing that was answered again."""

from __future__ import annotations

from agents.machine import Answer, Decision

GRANTED = "rate.granted"
"""Permits, in blocks too."""
REFUSED = "rate.refused"
"""Commands for permits that were answered without any: at once, at their time-out, or by an error."""
WAITED = "rate.waited"
"""Commands that began to wait."""
SERVED = "rate.served"
"""Commands that waited and got permits."""
PENALTIES = "rate.penalties"
"""Cooldowns that kept permits back for longer than before."""
EXPIRED = "rate.expired"
"""Leases that ran out: neither released nor settled."""
LOST = "rate.lost"
"""Permits of blocks that ran out."""


def count_answer(decision: Decision, answer: Answer) -> None:
    """Count what a command for permits was answered."""
    granted = answer.body.get("granted", 0)
    if granted:
        decision.counts.append((GRANTED, granted))
    else:
        decision.counts.append((REFUSED, 1))
