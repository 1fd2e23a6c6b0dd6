"""What was deleted before somebody claimed it comes back, or the claim waits for ever.

Elsewhere: a cancel or a clean-up overtakes the start, finds nothing, and the start goes ahead later.
"""

from __future__ import annotations

from agents.run.eviction import EVICTED_AFTER_END_MS, EVICTED_AFTER_FINISH_MS, FORGOTTEN_AFTER_MS
from tests.failure_modes.caller import Caller
from tests.sealed_sessions import sealed

CALL = {"toolId": "t", "inputHash": "h"}


def test_a_submit_that_its_cancel_overtook_never_starts() -> None:
    caller = Caller()
    caller.ask("run.cancel")
    for later in (0, EVICTED_AFTER_END_MS, FORGOTTEN_AFTER_MS - 1):
        caller.pass_time(later)
        assert caller.refusal("run.submit", name="work") == "RUN_ENDED"
    assert caller.dispatched == 0
    assert [event["type"] for event in caller.events] == ["terminal"]


def test_an_end_that_overtook_the_submit_stands() -> None:
    caller = Caller()
    caller.ask("terminal.set", status="completed", result=7)
    answer = caller.ask("run.submit", name="work")
    assert answer is not None
    assert (answer["error"]["code"], answer["error"]["terminal"]["result"]) == ("RUN_ENDED", 7)
    assert caller.dispatched == 0


def test_a_clean_up_that_comes_before_the_run_cleans_nothing_later() -> None:
    caller = Caller()
    assert caller.refusal("run.finish") == "RUN_NOT_FOUND"
    caller.ask("run.submit", name="work")
    assert caller.refusal("run.finish") == "RUN_NOT_ENDED"
    caller.pass_time(10 * EVICTED_AFTER_FINISH_MS)
    answer = caller.ask("run.status")
    assert answer is not None
    assert answer["result"]["status"] == "running"
    assert caller.dispatched == 1


def test_a_wait_for_a_run_that_does_not_come_leaves_nothing_for_the_run_that_does() -> None:
    caller = Caller()
    assert caller.ask("events.list", timeoutMs=100) is None
    caller.pass_time(200)
    assert caller.refusal("run.status") == "RUN_NOT_FOUND"
    state = caller.lane.state()
    assert "run.head" not in state
    assert "run.wait" not in state
    assert caller.ask("events.list", timeoutMs=100) is None
    answer = caller.ask("run.submit", name="work")
    assert answer is not None
    assert answer["result"]["seq"] == 1
    caller.pass_time(200)
    caller.ask("run.status")
    assert "run.wait" not in caller.lane.state()


def test_what_was_planned_for_a_forgotten_run_does_not_befall_the_next_of_its_name() -> None:
    caller = Caller()
    caller.ask("run.cancel")
    caller.pass_time(EVICTED_AFTER_END_MS)
    caller.ask("run.status")
    caller.pass_time(FORGOTTEN_AFTER_MS)
    assert caller.ask("run.submit", name="work") is not None
    assert caller.dispatched == 1
    for _ in range(10):
        caller.pass_time(EVICTED_AFTER_END_MS)
        answer = caller.ask("run.status")
        assert answer is not None
        assert answer["result"]["status"] == "running"
    assert [event["seq"] for event in caller.events] == [1, 1]


def test_a_result_that_came_before_the_claim_is_nobodys() -> None:
    caller = Caller()
    publish = {**CALL, "fencingNumber": 1, "value": "early"}
    assert caller.refusal("call.publish", **publish) == "CALL_FENCED"
    assert caller.refusal("call.renew", **CALL, fencingNumber=1) == "CALL_FENCED"
    claimed = caller.result("call.claim", **CALL, owner="a")
    assert (claimed["status"], claimed["fencingNumber"]) == ("claimed", 1)
    assert caller.result("call.await", **CALL) == {"status": "timeout"}


def test_a_call_that_was_given_back_before_anybody_else_claims_it_is_there_to_be_claimed() -> None:
    caller = Caller()
    caller.result("call.claim", **CALL, owner="a")
    release = {**CALL, "fencingNumber": 1, "error": "e", "onFailure": "release"}
    assert caller.result("call.publish", **release) == {"published": False, "answered": 0}
    assert caller.refusal("call.publish", **CALL, fencingNumber=1, value="late") == "CALL_FENCED"
    claimed = caller.result("call.claim", **CALL, owner="b")
    assert (claimed["status"], claimed["fencingNumber"]) == ("claimed", 2)


def test_what_a_forgotten_run_had_is_not_there_for_the_next_of_its_name() -> None:
    caller = Caller()
    caller.result("call.claim", **CALL, owner="a")
    caller.result("call.publish", **CALL, fencingNumber=1, value="old")
    caller.result("child.terminal.set", eventKey="k", data="old")
    caller.result("retry.put", params="old")
    caller.result("sessions.put", sessions=[sealed()])
    caller.result("instance.put", instanceId="old")
    caller.ask("run.cancel")
    caller.pass_time(EVICTED_AFTER_END_MS)
    caller.ask("run.status")
    caller.pass_time(FORGOTTEN_AFTER_MS)

    assert caller.result("child.terminal.get", eventKey="k") == {"state": None}
    assert caller.result("retry.claim", maxAttempts=3) == {"claimed": False, "attempts": 0}
    assert caller.refusal("sessions.get") == "SESSIONS_NOT_FOUND"
    assert caller.result("instance.get") == {"instance": None}
    assert caller.refusal("call.publish", **CALL, fencingNumber=1, value="old") == "CALL_FENCED"
    claimed = caller.result("call.claim", **CALL, owner="b")
    assert (claimed["status"], claimed["fencingNumber"]) == ("claimed", 1)


def test_a_retry_state_that_expired_before_its_claim_is_not_claimed() -> None:
    caller = Caller()
    caller.result("retry.put", params="p", ttlMs=60_000)
    caller.pass_time(59_999)
    assert caller.result("retry.claim", maxAttempts=9)["attempts"] == 1
    caller.pass_time(3_600_000)
    assert caller.result("retry.claim", maxAttempts=9) == {"claimed": False, "attempts": 0}
    assert "run.retry_params" not in caller.lane.state()
