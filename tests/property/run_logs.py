"""Logs of all commands of runs, and of time that passes; see `replay_log`."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.property.json_values import TEXT, VALUES
from tests.run_lane import DAY, HOUR, MINUTE
from tests.sealed_sessions import sealed

events = st.one_of(
    st.fixed_dictionaries({"type": st.just("log"), "line": TEXT}),
    st.fixed_dictionaries(
        {"type": st.sampled_from(["status", "progress"]), "status": TEXT},
        optional={"logs": VALUES, "ts": VALUES},
    ),
)
keys = st.sampled_from(["k", "Ж", "integration_event"])
of_call = {"toolId": st.sampled_from(["t", "u"]), "inputHash": st.sampled_from(["1", "2"])}
fencing_numbers = st.integers(1, 3)
leases = st.sampled_from([1000, MINUTE, HOUR])
timeouts = st.integers(0, 30_000)
sessions = st.lists(st.sampled_from(["main", "spare"]), max_size=2, unique=True).map(
    lambda names: [sealed(name) for name in names]
)
lifetimes = st.sampled_from([0, MINUTE, HOUR])
traces = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["coordinator", "dynamic_worker"]),
        "phase": TEXT,
        "ts": st.integers(0, 5),
        "ms": st.integers(0, 5),
    },
    optional={"more": VALUES},
)
commands: dict[str, dict[str, Any]] = {
    "run.submit": {"name": TEXT, "params": VALUES, "pool": TEXT},
    "run.cancel": {"reason": VALUES},
    "run.finish": {},
    "run.status": {"waitMs": st.integers(0, 2000), "trace": st.booleans()},
    "events.append": {"event": events},
    "events.list": {"afterSeq": st.integers(0, 5), "timeoutMs": st.integers(0, 30_000)},
    "terminal.set": {"status": st.sampled_from(["completed", "failed"]), "result": VALUES, "error": TEXT},
    "terminal.get": {},
    "child.terminal.set": {"eventKey": keys, "data": VALUES},
    "child.terminal.get": {"eventKey": keys},
    "child.terminal.await": {"eventKey": keys, "timeoutMs": timeouts},
    "call.claim": {**of_call, "owner": TEXT, "leaseMs": leases},
    "call.renew": {**of_call, "fencingNumber": fencing_numbers, "leaseMs": leases},
    "call.publish": {
        **of_call,
        "fencingNumber": fencing_numbers,
        "error": st.one_of(st.none(), TEXT),
        "value": st.none(),
        "onFailure": st.sampled_from(["keep", "release"]),
    },
    "call.await": {**of_call, "timeoutMs": timeouts, "claim": st.booleans(), "owner": TEXT},
    "call.debug": {},
    "retry.put": {"params": VALUES, "ttlMs": lifetimes},
    "retry.claim": {"maxAttempts": st.integers(0, 2)},
    "launch.put": {"params": VALUES, "sessions": sessions, "dbSessionsTtlMs": lifetimes},
    "sessions.put": {"sessions": sessions, "ttlMs": lifetimes},
    "sessions.get": {},
    "instance.put": {"instanceId": TEXT, "attempt": st.integers(1, 3), "ttlMs": lifetimes},
    "instance.get": {},
    "trace.add": {"trace": traces},
    "trace.list": {},
    "run.signal": {"eventKey": keys, "signalType": TEXT, "payload": VALUES},
    "run.inspect": {},
}
steps = st.one_of(
    st.sampled_from([1, 999, MINUTE, HOUR, DAY, 7 * DAY]).map(lambda ms: ["pass", ms]),
    *[
        st.tuples(st.just(type_), st.sampled_from(["a", "B/é"]), st.fixed_dictionaries(fields)).map(list)
        for type_, fields in commands.items()
    ],
)
logs = st.lists(steps, max_size=40)
