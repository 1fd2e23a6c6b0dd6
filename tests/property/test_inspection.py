"""`run.inspect` against the bytes that a lane holds, after any log of commands."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given

from agents.run import inspection
from agents.run.waits import MAX_WAITS
from tests.property.run_logs import logs
from tests.run_lane import MINUTE, RunLane, code, result
from tests.sealed_sessions import sealed

RUNS = ("a", "B/é")


@given(logs)
def test_the_parts_add_up_to_what_is_stored(log: list[list[Any]]) -> None:
    lane = RunLane()
    for what, *rest in log:
        if what == "pass":
            lane.pass_time(rest[0])
        else:
            lane.send(what, rest[0], **rest[1])
    for run in RUNS:
        key = run.encode() + b"\0"
        stored = {at: record for at, record in lane.state.items() if at.split(b"\0", 1)[1].startswith(key)}
        answer = lane.send("run.inspect", run)
        if not stored:
            assert code(answer) == "RUN_NOT_FOUND"
            continue
        found = result(answer)
        assert "more" not in found
        sizes = {part["what"]: (part["records"], part["bytes"]) for part in found["stored"]}
        head = next(at for at in stored if at.startswith(b"run.head\0"))
        assert sum(size for _, size in sizes.values()) == sum(
            len(at) + len(record) for at, record in stored.items() if at != head
        )
        assert len(found["waiting"]) == found["waits"] == sizes.get("waits", (0, 0))[0]
        assert len(found["children"]) == sizes.get("children", (0, 0))[0]
        for name in ("retry", "sessions", "instance"):
            assert (found[name] is not None) == (name in sizes)
        # It is a question: it changes nothing.
        assert not lane.touched.writes


def test_it_tells_neither_parameters_nor_sessions_nor_results() -> None:
    lane = RunLane()
    secret = "planted-7f3a"
    lane.send("launch.put", params={"key": secret}, sessions=[sealed(salt=secret)])
    lane.send("child.terminal.set", eventKey="k", data=secret)
    lane.send("call.claim", toolId="t", inputHash="h", owner="o")
    lane.send("call.publish", toolId="t", inputHash="h", fencingNumber=1, value=secret)
    lane.send("call.await", toolId="t", inputHash="other", timeoutMs=MINUTE, claim=False)
    told = json.dumps(result(lane.send("run.inspect")))
    assert secret not in told
    assert sealed(salt=secret)["ciphertext"] not in told
    assert '"sessionCount": 1' in told


def test_much_is_counted_and_listed_up_to_a_bound() -> None:
    lane = RunLane()
    most = inspection.MAX_COUNTED
    for number in range(most + 1):
        lane.send("child.terminal.set", eventKey=f"{number:04d}")
    for number in range(MAX_WAITS):
        lane.send("child.terminal.await", eventKey=f"{number:04d}" + "x" * 500, timeoutMs=30_000)
    found = result(lane.send("run.inspect"))
    (children,) = [part for part in found["stored"] if part["what"] == "children"]
    assert (children["records"], children["more"]) == (most, True)
    assert len(found["waiting"]) < found["waits"] == MAX_WAITS
    assert found["more"] is True
    assert len(json.dumps(found)) < 1024 * 1024
