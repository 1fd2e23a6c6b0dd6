"""The run machine's part of a lane's state."""

from __future__ import annotations

from agents.tables import raw_table, record_table
from schemas.stored import RunHead, RunWait, WaitGroup
from schemas.stored_calls import StoredCall

HEADS = record_table("run.head", (str,), RunHead)
"""Key (run id)."""

EVENTS = raw_table("run.event", (str, int))
"""Key (run id, seq): the event's JSON, the bytes that went to `run-events`. The newest 500 are kept."""

TERMINALS = raw_table("run.terminal", (str,))
"""Key (run id): the terminal state's JSON, the bytes that went to `run-terminals`."""

WAITS = record_table("run.wait", (str, str, int, int), RunWait)
"""Key (run id, subject, order, wait number); see `agents.run.waits`."""

WAIT_GROUPS = record_table("run.wait_group", (str, str), WaitGroup)
"""Key (run id, subject)."""

CALLS = record_table("run.call", (str, str, str), StoredCall)
"""Key (run id, tool id, input hash)."""

CALL_RESULTS = raw_table("run.call_result", (str, int))
"""Key (run id, call number): what was published, as JSON: `{"value": ...}` or `{"error": ...}`."""

CHILDREN = raw_table("run.child", (str, str))
"""Key (run id, event key): JSON of the child result's state, as answers have it."""

UNKNOWN_RUN = RunHead()
"""The head of a run of which nothing is stored."""
