"""Appending and listing events (spec wire 2 to 4, coordinator 1)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import TypeAdapter

from agents.run.tables import EVENTS, HEADS
from schemas.events import RunEvent
from tests.run_lane import RunLane, code, result


@pytest.mark.parametrize(
    ("event", "stored"),
    [
        (
            {"type": "log", "line": "a\u00e9\u2028"},
            ['"type":"log"', '"ts":1700000000000', '"line":"aé\u2028"'],
        ),
        (
            {"type": "log", "line": "", "ts": 1.5, "seq": 9, "runId": "q", "x": 1},
            ['"type":"log"', '"ts":1.5', '"line":""'],
        ),
        ({"type": "log", "line": "l", "ts": True}, ['"type":"log"', '"ts":1700000000000', '"line":"l"']),
        ({"type": "status", "status": "s"}, ['"type":"status"', '"ts":1700000000000', '"status":"s"']),
        (
            {"type": "status", "status": "s", "logs": ["a", 1, None, ["b"], "c"], "ts": -3},
            ['"type":"status"', '"ts":-3', '"status":"s"', '"logs":["a","c"]'],
        ),
        (
            {"type": "status", "status": "s", "logs": "a"},
            ['"type":"status"', '"ts":1700000000000', '"status":"s"'],
        ),
        (
            {"type": "status", "status": "s", "logs": []},
            ['"type":"status"', '"ts":1700000000000', '"status":"s"', '"logs":[]'],
        ),
        (
            {"type": "progress", "status": "p"},
            [
                '"type":"progress"',
                '"ts":1700000000000',
                '"status":"p"',
                '"logs":null',
                '"activeNodeId":null',
                '"activeArtifactTableNamespace":null',
                '"updatedAt":null',
            ],
        ),
        (
            {
                "type": "progress",
                "status": "p",
                "logs": [1, "l"],
                "activeNodeId": "n",
                "activeArtifactTableNamespace": "t",
                "updatedAt": 7,
                "ts": 8,
            },
            [
                '"type":"progress"',
                '"ts":8',
                '"status":"p"',
                '"logs":["l"]',
                '"activeNodeId":"n"',
                '"activeArtifactTableNamespace":"t"',
                '"updatedAt":7',
            ],
        ),
        (
            {"type": "progress", "status": "p", "logs": {}, "activeNodeId": 1, "updatedAt": "7", "ts": 8},
            [
                '"type":"progress"',
                '"ts":8',
                '"status":"p"',
                '"logs":null',
                '"activeNodeId":null',
                '"activeArtifactTableNamespace":null',
                '"updatedAt":null',
            ],
        ),
    ],
)
def test_an_event_has_its_fields_in_order_and_nothing_else(
    lane: RunLane, event: dict[str, Any], stored: list[str]
) -> None:
    reply = lane.send("events.append", command_id="e", event=event)
    expected = "{" + ",".join(['"seq":1,"runId":"r"', *stored, '"commandId":"e"']) + "}"
    assert lane.outputs == [("run-events", "r", expected.encode())]
    assert lane.state[EVENTS.key("r", 1)] == expected.encode()
    assert result(reply) == {"seq": 1, "ts": json.loads(expected)["ts"]}
    TypeAdapter(RunEvent).validate_json(expected)


@pytest.mark.parametrize(
    "event",
    [
        None,
        "log",
        [],
        {},
        {"type": "log"},
        {"type": "log", "line": 1},
        {"type": "log", "line": None},
        {"type": "status"},
        {"type": "status", "status": 1},
        {"type": "progress", "logs": []},
        {"type": "progress", "status": True},
        {"type": "other", "line": "l", "status": "s"},
        {"line": "l"},
        {"type": 1, "line": "l"},
    ],
)
def test_an_event_that_fits_no_type_is_refused_and_uses_no_seq(lane: RunLane, event: Any) -> None:
    assert code(lane.send("events.append", event=event)) == "INVALID_RUN_EVENT"
    assert lane.state == {}
    assert lane.outputs == []
    assert result(lane.log())["seq"] == 1


def test_a_terminal_event_is_refused_with_the_advice_to_use_terminal_set(lane: RunLane) -> None:
    refused = lane.send("events.append", event={"type": "terminal", "status": "completed"})
    assert code(refused) == "INVALID_RUN_EVENT"
    assert "terminal.set" in refused["error"]["message"]


def test_a_write_on_an_unknown_run_creates_it_as_running(lane: RunLane) -> None:
    lane.log()
    status = result(lane.send("run.status"))
    assert status["status"] == "running"
    assert status["latestSeq"] == 1


def test_a_refusal_does_not_create_the_run(lane: RunLane) -> None:
    lane.send("run.finish")
    lane.send("run.status", waitMs=2000)
    assert lane.state == {}
    assert lane.timers == {}


def test_appending_event_700_costs_what_event_600_did(lane: RunLane) -> None:
    costs = set()
    for n in range(1, 701):
        lane.log()
        costs.add((n > 500, len(lane.touched.reads), len(lane.touched.writes)))
    assert costs == {(False, 1, 2), (True, 1, 3)}


def test_the_newest_500_events_stay_readable(lane: RunLane) -> None:
    for n in range(1, 503):
        lane.log(str(n))
    found = lane.list()
    assert [event["seq"] for event in found["events"]] == list(range(3, 503))
    assert (found["firstSeq"], found["latestSeq"]) == (3, 502)
    assert "more" not in found
    assert [key[1] for key in lane.keys(EVENTS)] == list(range(3, 503))


def test_listed_events_are_the_emitted_ones(lane: RunLane) -> None:
    lane.send("run.submit", name="n")
    lane.send("events.append", event={"type": "progress", "status": "s", "ts": 1.5})
    lane.end(result={"é": [1, 1.0, None]}, completedAt=7)
    assert lane.list()["events"] == lane.values("run-events")


@pytest.mark.parametrize(
    ("fields", "seqs", "more"),
    [
        ({"afterSeq": 7}, [8, 9, 10], False),
        ({"afterSeq": 7.9}, [8, 9, 10], False),
        ({"afterSeq": -3}, list(range(1, 11)), False),
        ({"afterSeq": "7"}, list(range(1, 11)), False),
        ({"afterSeq": True}, list(range(1, 11)), False),
        ({"afterSeq": 10}, [], False),
        ({"afterSeq": 11}, [], False),
        ({"afterSeq": 1e300}, [], False),
        ({"limit": 10}, list(range(1, 11)), False),
        ({"limit": 9}, list(range(1, 10)), True),
        ({"limit": 0}, [1], True),
        ({"limit": -5}, [1], True),
        ({"afterSeq": 9, "limit": 1}, [10], False),
        ({"afterSeq": 8, "limit": 1.9}, [9], True),
    ],
)
def test_list_cuts_by_after_seq_and_limit(
    lane: RunLane, fields: dict[str, Any], seqs: list[int], more: bool
) -> None:
    for _ in range(10):
        lane.log()
    found = lane.list(**fields)
    assert [event["seq"] for event in found["events"]] == seqs
    assert found.get("more", False) is more
    assert (found["firstSeq"], found["latestSeq"]) == (1, 10)


def test_a_list_holds_at_most_768_kib_of_events_and_at_least_one(lane: RunLane) -> None:
    limit = 768 * 1024
    lane.log("x" * (limit + 10))
    overhead = len(lane.outputs[0][2]) - (limit + 10)
    for _ in range(3):
        lane.log("y" * (limit // 3 - overhead))
    assert [len(value) for _, _, value in lane.outputs[1:]] == [limit // 3] * 3
    lane.log("z")
    too_large_alone = lane.list()
    assert [event["seq"] for event in too_large_alone["events"]] == [1]
    assert too_large_alone["more"] is True
    exactly_full = lane.list(afterSeq=1)
    assert [event["seq"] for event in exactly_full["events"]] == [2, 3, 4]
    assert exactly_full["more"] is True
    assert "more" not in lane.list(afterSeq=2)


def test_one_byte_more_than_768_kib_is_cut(lane: RunLane) -> None:
    limit = 768 * 1024
    lane.log()
    overhead = len(lane.outputs[0][2]) - 1
    lane.log("x" * (limit // 2 - overhead + 1))
    lane.log("x" * (limit // 2 - overhead))
    assert [event["seq"] for event in lane.list(afterSeq=1)["events"]] == [2]


def test_listing_never_reads_what_it_does_not_return(lane: RunLane) -> None:
    for _ in range(600):
        lane.log()
    lane.list(afterSeq=300, limit=5)
    assert lane.touched.reads == [HEADS.key("r"), *(EVENTS.key("r", seq) for seq in range(301, 306))]
    lane.list(afterSeq=598)
    assert len(lane.touched.reads) == 3


def test_an_unknown_run_has_no_events(lane: RunLane) -> None:
    assert lane.list() == {"events": [], "latestSeq": 0, "firstSeq": 0}
    assert result(lane.send("terminal.get")) == {"terminal": None}
    assert lane.state == {}


def test_a_hole_in_the_kept_events_is_a_bug_and_no_answer(lane: RunLane) -> None:
    for _ in range(3):
        lane.log()
    del lane.state[EVENTS.key("r", 2)]
    with pytest.raises(LookupError, match="event 2"):
        lane.list()
