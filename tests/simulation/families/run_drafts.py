"""Commands about runs, as clients and executors of all kinds send them: right, late, twice, or with old numbers.

A run has commands of a few kinds only, so that those about the same call or result meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from tests.sealed_sessions import sealed
from tests.simulation.families.registry import Answered, Draft

CLEAR_TEXT = "in-the-clear"
"""What a database session says that its sender forgot to encrypt."""

SHORTEST_RETRY_MS = 60_000
"""How long retry state lives at least."""

_ANY = {
    "run.submit": 5,
    "events.append": 8,
    "run.status": 4,
    "terminal.set": 2,
    "run.cancel": 1,
    "run.finish": 2,
}
_LIFE = {
    "events.append": 40,
    "run.submit": 14,
    "events.list": 10,
    "run.status": 8,
    "terminal.set": 7,
    "run.cancel": 4,
    "run.finish": 6,
    "terminal.get": 4,
}
_CALLS = {"call.claim": 24, "call.await": 18, "call.publish": 14, "call.renew": 9, "call.debug": 3}
_RESULTS = {
    "child.terminal.await": 20,
    "child.terminal.set": 14,
    "run.signal": 14,
    "child.terminal.get": 6,
}
_LAUNCH = {
    "retry.claim": 12,
    "retry.put": 8,
    "launch.put": 6,
    "sessions.put": 6,
    "sessions.get": 5,
    "instance.put": 9,
    "instance.get": 4,
    "trace.add": 9,
    "trace.list": 4,
}
_MIXES = [
    (list(mix), list(mix.values())) for mix in (_LIFE, _CALLS | _ANY, _RESULTS | _ANY, _LAUNCH | _ANY, _LIFE)
]
"""One per last digit of a key."""


def draft(random: Random, keys: Sequence[str], _: Answered) -> Draft:
    """A command about one of the runs."""
    key = random.choice(keys)
    types, weights = _MIXES[int(key[-1]) % len(_MIXES)]
    (type_,) = random.choices(types, weights)
    body: dict[str, Any] = {"type": type_, "runId": key}
    if type_ in _FIELDS:
        body |= _FIELDS[type_](random)
    return key, body


def _append(random: Random) -> dict[str, Any]:
    kind = random.choice(["log", "log", "status", "progress", "wrong"])
    number = random.randrange(1000)
    event = {"type": kind, "line" if kind == "log" else "status": f"{kind} {number}"}
    return {"event": event} | _sometimes(random, 0.1, attempt=random.choice([1, 2]))


def _submit(random: Random) -> dict[str, Any]:
    fields = {"name": random.choice(["play", "play", "play", ""]), "params": {"n": random.randrange(3)}}
    return fields | _sometimes(random, 0.2, sessions=_sessions(random))


def _end(random: Random) -> dict[str, Any]:
    return {
        "status": random.choice(["completed", "completed", "failed"]),
        "result": random.choice([None, {"a": 1}]),
    }


def _call(random: Random) -> dict[str, Any]:
    return {"toolId": "t", "inputHash": random.choice(["h1", "h1", "h1", "h2"])}


def _claim(random: Random) -> dict[str, Any]:
    fields = {"owner": f"w{random.randrange(3)}", "leaseMs": random.choice([1000, 1000, 2500, 30_000])}
    return _call(random) | fields | _sometimes(random, 0.1, attempt=1)


def _await_call(random: Random) -> dict[str, Any]:
    fields = {"timeoutMs": random.choice([0, 600, 3000, 20_000])}
    if random.random() < 0.6:
        fields |= _claim(random) | {"claim": True}
    return _call(random) | fields


def _renew(random: Random) -> dict[str, Any]:
    return _call(random) | {"fencingNumber": _fencing_number(random), "leaseMs": random.choice([1000, 5000])}


def _publish(random: Random) -> dict[str, Any]:
    fields = _call(random) | {"fencingNumber": _fencing_number(random)}
    if random.random() < 0.5:
        return fields | {"value": random.randrange(1000)}
    return fields | {"error": {"n": random.randrange(1000)}, "onFailure": random.choice(["keep", "release"])}


def _fencing_number(random: Random) -> int:
    return random.choice([1, 1, 1, 2, 2, 3])


def _result(random: Random) -> dict[str, Any]:
    return {"eventKey": random.choice(["k1", "k2"])}


def _set_result(random: Random) -> dict[str, Any]:
    return _result(random) | {"data": _unique(random)} | _sometimes(random, 0.2, storedAt=1_600_000_000_000)


def _await_result(random: Random) -> dict[str, Any]:
    return _result(random) | {"timeoutMs": random.choice([0, 600, 3000, 20_000])}


def _signal(random: Random) -> dict[str, Any]:
    fields = {"payload": _unique(random)}
    if random.random() < 0.8:
        fields |= _result(random)
    return fields | _sometimes(random, 0.2, signalType=random.choice(["k1", "integration_event"]))


def _unique(random: Random) -> dict[str, Any]:
    return {"n": random.randrange(10**12)}


def _launch(random: Random) -> dict[str, Any]:
    return random.choice(
        [{"params": {"n": random.randrange(10)}}, {"paramsRef": "ref"}, {"params": None}, {}]
    )


def _sessions(random: Random) -> list[dict[str, Any]]:
    sessions = [sealed("main", str(random.randrange(100)))]
    if random.random() < 0.2:
        sessions[0]["ciphertext"] = CLEAR_TEXT
    return sessions


def _put_sessions(random: Random) -> dict[str, Any]:
    return {"sessions": _sessions(random), "ttlMs": random.choice([60_000, 600_000])}


def _instance(random: Random) -> dict[str, Any]:
    fields = {"instanceId": f"i{random.randrange(3)}", "ttlMs": random.choice([60_000, 3_600_000])}
    return fields | _sometimes(random, 0.7, attempt=random.choice([1, 2, 3]))


def _trace(random: Random) -> dict[str, Any]:
    times = {"ts": random.randrange(1000), "ms": random.randrange(100)}
    return {"trace": {"source": "coordinator", "phase": "launch", **times}}


def _sometimes(random: Random, share: float, **fields: Any) -> dict[str, Any]:
    return fields if random.random() < share else {}


_FIELDS: dict[str, Callable[[Random], dict[str, Any]]] = {
    "events.append": _append,
    "run.submit": _submit,
    "events.list": lambda random: {
        "afterSeq": random.randrange(8),
        "timeoutMs": random.choice([0, 400, 3000, 20_000]),
    },
    "run.status": lambda random: {"waitMs": random.choice([0, 300, 2000]), "trace": random.choice([None, 1])},
    "terminal.set": _end,
    "run.cancel": lambda random: {"reason": "enough"},
    "call.claim": _claim,
    "call.await": _await_call,
    "call.renew": _renew,
    "call.publish": _publish,
    "child.terminal.set": _set_result,
    "child.terminal.await": _await_result,
    "child.terminal.get": _result,
    "run.signal": _signal,
    "retry.put": lambda random: _launch(random) | {"ttlMs": random.choice([SHORTEST_RETRY_MS, 3_600_000])},
    "retry.claim": lambda random: {"maxAttempts": random.choice([1, 2, 3])},
    "launch.put": lambda random: _launch(random) | {"sessions": _sessions(random)},
    "sessions.put": _put_sessions,
    "instance.put": _instance,
    "trace.add": _trace,
}
"""The fields of a command beside `type` and `runId`, for those that have any."""
