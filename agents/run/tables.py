"""The run machine's part of a lane's state."""

from __future__ import annotations

from agents.tables import raw_table, record_table
from schemas.stored import RunHead, RunWait

HEADS = record_table("run.head", (str,), RunHead)
"""Key (run id)."""

EVENTS = raw_table("run.event", (str, int))
"""Key (run id, seq): the event's JSON, the bytes that went to `run-events`. The newest 500 are kept."""

TERMINALS = raw_table("run.terminal", (str,))
"""Key (run id): the terminal state's JSON, the bytes that went to `run-terminals`."""

WAITS = record_table("run.wait", (str, int, int), RunWait)
"""Key (run id, seq that answers the wait, wait number): what an event answers lies first."""

UNKNOWN_RUN = RunHead()
"""The head of a run of which nothing is stored."""
