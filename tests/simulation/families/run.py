"""Runs in the simulation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from schemas.topics import RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS
from tests.simulation.families.registry import Committed, Draft, SimulatedFamily

_WEIGHTS = {
    "events.append": 40,
    "run.submit": 14,
    "events.list": 10,
    "run.status": 8,
    "terminal.set": 7,
    "run.cancel": 4,
    "run.finish": 6,
    "terminal.get": 4,
}
_TYPES, _TYPE_WEIGHTS = list(_WEIGHTS), list(_WEIGHTS.values())


def draft(random: Random, keys: Sequence[str]) -> Draft:
    """A command about one of the runs."""
    key = random.choice(keys)
    (type_,) = random.choices(_TYPES, _TYPE_WEIGHTS)
    body: dict[str, Any] = {"type": type_, "runId": key}
    if type_ == "events.append":
        body["event"] = _event(random)
        if random.random() < 0.1:
            body["attempt"] = random.choice([1, 2])
    elif type_ == "run.submit":
        body["name"] = random.choice(["play", ""])
        body["params"] = {"n": random.randrange(3)}
    elif type_ == "events.list":
        body["afterSeq"] = random.randrange(8)
        body["timeoutMs"] = random.choice([0, 400, 3000, 20_000])
    elif type_ == "run.status":
        body["waitMs"] = random.choice([0, 300, 2000])
    elif type_ == "terminal.set":
        body["status"] = random.choice(["completed", "completed", "failed"])
        body["result"] = random.choice([None, {"a": 1}])
    elif type_ == "run.cancel":
        body["reason"] = "enough"
    return key, body


def _event(random: Random) -> dict[str, Any]:
    kind = random.choice(["log", "log", "status", "progress", "wrong"])
    if kind == "log":
        return {"type": kind, "line": f"line {random.randrange(1000)}"}
    return {"type": kind, "status": f"s{random.randrange(10)}"}


def invariants(committed: Committed) -> Iterator[str]:
    """`seq` is dense until a run is forgotten, nothing comes after an end, and terminal states are the ends."""
    ends: dict[bytes | None, list[dict[str, Any]]] = {}
    for partition in committed[RUN_EVENTS.name]:
        latest: dict[bytes | None, int] = {}
        for record in partition:
            event = json.loads(record.value or b"")
            seq, before = event["seq"], latest.get(record.key, 0)
            has_ended = before == -1
            if has_ended and seq != 1:
                yield f"event {seq} of {record.key!r} at {record.offset} comes after its end"
            if not has_ended and seq != before + 1:
                yield f"event {seq} of {record.key!r} at {record.offset} comes where {before + 1} is due"
            latest[record.key] = -1 if event["type"] == "terminal" else seq
            if event["type"] == "terminal":
                ends.setdefault(record.key, []).append(event)
    states: dict[bytes | None, list[dict[str, Any]]] = {}
    for partition in committed[RUN_TERMINALS.name]:
        for record in partition:
            states.setdefault(record.key, []).append(json.loads(record.value or b""))
    for key in ends.keys() | states.keys():
        if [_of(end) for end in ends.get(key, [])] != [_of(state) for state in states.get(key, [])]:
            yield f"the terminal states of {key!r} are not its terminal events"
    yield from _dispatches(committed)


def _dispatches(committed: Committed) -> Iterator[str]:
    submits = []
    for partition in committed[RUN_EVENTS.name]:
        for record in partition:
            event = json.loads(record.value or b"")
            submits.append((record.key, event["commandId"]))
    for partition in committed[RUN_DISPATCH.name]:
        for record in partition:
            dispatch = (record.key, json.loads(record.value or b"")["commandId"])
            if submits.count(dispatch) != 1:
                yield f"{dispatch} was dispatched without exactly one event"


def _of(end: dict[str, Any]) -> dict[str, Any]:
    at = end.get("completedAt", end.get("ts"))
    return {**{name: end[name] for name in end if name not in ("type", "ts", "completedAt")}, "at": at}


SIMULATED = SimulatedFamily("run", "r", draft, invariants)
