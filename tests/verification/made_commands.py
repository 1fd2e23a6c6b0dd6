"""Commands of every kind about runs, as Hypothesis may choose them: few names, so that they meet."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.sealed_sessions import sealed

Fields = dict[str, st.SearchStrategy[Any]]

_events = st.sampled_from(
    [
        {"type": "log", "line": "x"},
        {"type": "status", "status": "half", "ts": 1.5},
        {"type": "progress", "status": "p", "logs": ["l"]},
        {"type": "log"},
        {"type": "terminal", "status": "failed"},
    ]
)
_waits = st.sampled_from([0, 900, 20_000])
_large = st.sampled_from([1, 1.0, None, {"b": 1, "a": [1.0]}, "x" * 1500])
"""Also values that an answer does not keep as they are."""

OF_EVENTS: dict[str, Fields] = {
    "run.submit": {
        "name": st.sampled_from(["n", ""]),
        "sessions": st.sampled_from([None, [sealed("main")], [{"name": "open"}]]),
    },
    "events.append": {"event": _events, "attempt": st.sampled_from([None, 1, 2])},
    "terminal.set": {
        "status": st.sampled_from(["completed", "failed", "odd"]),
        "completedAt": st.sampled_from([None, 7]),
        "result": st.sampled_from([None, {"b": 1, "a": [1.0]}]),
    },
    "run.cancel": {},
    "run.finish": {},
    "run.status": {"waitMs": st.sampled_from([0, 900])},
    "events.list": {"afterSeq": st.integers(0, 3), "timeoutMs": st.sampled_from([0, 20_000])},
    "terminal.get": {},
    "no.such": {},
}
_call: Fields = {"toolId": st.just("t"), "inputHash": st.sampled_from(["h", "h\0"])}
_child: Fields = {"eventKey": st.sampled_from(["k", " k", "integration_event", "other"])}
_params: Fields = {"params": _large, "paramsBytes": st.sampled_from([None, 3])}
_sessions = st.sampled_from([[], [sealed("main")], [sealed("main", "2"), sealed("side")]])
_lease = st.sampled_from([1000, None])

OF_SLOTS: dict[str, Fields] = {
    "child.terminal.set": {**_child, "data": _large, "storedAt": st.sampled_from([None, 7])},
    "child.terminal.get": _child,
    "child.terminal.await": {**_child, "timeoutMs": _waits},
    "run.signal": {
        "eventKey": st.sampled_from([None, "k", " k "]),
        "signalType": st.sampled_from([None, "other", "integration_event"]),
        "payload": _large,
    },
    "call.claim": {**_call, "owner": st.sampled_from(["a", "b"]), "leaseMs": _lease},
    "call.renew": {**_call, "fencingNumber": st.integers(1, 3), "leaseMs": _lease},
    "call.publish": {
        **_call,
        "fencingNumber": st.integers(1, 3),
        "value": st.just(None),
        "error": st.sampled_from([None, None, "e"]),
        "onFailure": st.sampled_from(["keep", "release"]),
    },
    "call.await": {**_call, "timeoutMs": _waits, "claim": st.booleans(), "owner": st.just("c")},
    "call.debug": {},
    "retry.put": {**_params, "ttlMs": st.sampled_from([None, 60_000])},
    "retry.claim": {"maxAttempts": st.sampled_from([1, 3])},
    "launch.put": {**_params, "sessions": _sessions},
    "sessions.put": {"sessions": _sessions, "ttlMs": st.sampled_from([None, 60_000])},
    "sessions.get": {},
    "instance.put": {"instanceId": st.sampled_from(["i", "j"]), "attempt": st.sampled_from([None, 1, 2])},
    "instance.get": {},
    "trace.add": {
        "trace": st.sampled_from(
            [{"source": "coordinator", "phase": "p", "ts": 1, "ms": 2.5}, {"source": "nobody"}]
        )
    },
    "trace.list": {},
}
FIELDS = {**OF_EVENTS, **OF_SLOTS}
_TYPES = st.one_of(
    st.sampled_from([*OF_EVENTS, "events.append", "events.append", "events.append", "terminal.set"]),
    st.sampled_from(
        [*OF_SLOTS, "call.claim", "call.claim", "call.publish", "call.publish", "child.terminal.set"]
    ),
)


def commands() -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """The type and the fields of a command."""
    return _TYPES.flatmap(lambda type_: st.tuples(st.just(type_), st.fixed_dictionaries(FIELDS[type_])))
