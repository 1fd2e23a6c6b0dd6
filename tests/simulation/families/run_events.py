"""What always holds for the events, ends and dispatches of runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from schemas.topics import RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS
from tests.simulation.families.registry import Committed


def events_and_ends(committed: Committed) -> Iterator[str]:
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


def dispatches(committed: Committed) -> Iterator[str]:
    """Every dispatch has its one event."""
    submits = Counter(
        (record.key, json.loads(record.value or b"")["commandId"])
        for partition in committed[RUN_EVENTS.name]
        for record in partition
    )
    for partition in committed[RUN_DISPATCH.name]:
        for record in partition:
            dispatch = (record.key, json.loads(record.value or b"")["commandId"])
            if submits[dispatch] != 1:
                yield f"{dispatch} was dispatched without exactly one event"


def _of(end: dict[str, Any]) -> dict[str, Any]:
    at = end.get("completedAt", end.get("ts"))
    return {**{name: end[name] for name in end if name not in ("type", "ts", "completedAt")}, "at": at}
