"""The run machine's part of a lane's state."""

from __future__ import annotations

from agents.tables import raw_table, record_table
from schemas.stored import RunHead, RunWait, WaitGroup
from schemas.stored_calls import StoredCall
from schemas.stored_launch import StoredInstance, StoredRetry, StoredSessions

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

RETRIES = record_table("run.retry", (str,), StoredRetry)
"""Key (run id)."""

RETRY_PARAMS = raw_table("run.retry_params", (str,))
"""Key (run id): JSON with `params`, `paramsRef` and `paramsBytes`."""

SESSIONS = record_table("run.sessions", (str,), StoredSessions)
"""Key (run id)."""

INSTANCES = record_table("run.instance", (str,), StoredInstance)
"""Key (run id)."""

TRACES = raw_table("run.trace", (str, int))
"""Key (run id, trace number): the trace's JSON. The newest 200 are kept."""

UNKNOWN_RUN = RunHead()
"""The head of a run of which nothing is stored."""
