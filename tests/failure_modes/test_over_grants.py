"""More is granted than a limit allows: by a read and then a set, or by blocks that count too little or come back twice.

Elsewhere: two callers read the same count, and both write it raised by one; a crash forgets what was granted and not
yet written; a block that is settled and expires gives its permits back two times.
`tests/crash/test_permits_under_kills.py` kills clients, workers and the broker for longer.
"""

from __future__ import annotations

from typing import Any

from tests.contract.bare_client import Asked, BareClient, new_id
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

HOUR_MS = 3_600_000
MOST, ASKS = 100, 40
RULES = [
    {"ruleId": "window", "requestsPerWindow": MOST, "windowMs": HOUR_MS},
    {"ruleId": "sliding", "requestsPerWindow": MOST + 1, "windowMs": HOUR_MS, "kind": "sliding"},
]
PATIENCE_S = 60


def test_exactly_what_the_limit_allows_is_granted_across_kills(
    worker: WorkerProcess, client: BareClient
) -> None:
    bucket = new_id("bucket")
    asked: list[Asked] = []

    def ask(command_id: str | None = None) -> Asked:
        return client.ask("rate.acquire", bucket, command_id=command_id, rules=RULES)

    for lose in (None, worker.lose_state, worker.lose_disk):
        asked += [ask() for _ in range(ASKS)]
        # Some have their answer, others have none yet; some are sent again by clients that do not know.
        worker.kill()
        if lose is not None:
            lose()
        asked += [ask(again.command_id) for again in asked[-ASKS // 2 :]]
        worker.start()
    asked += [ask() for _ in range(ASKS)]
    granted: dict[str, int] = {}
    for each in asked:
        count = client.reply(each, patience_s=PATIENCE_S)["result"]["granted"]
        assert granted.setdefault(each.command_id, count) == count
    assert len(granted) == 4 * ASKS
    assert sum(granted.values()) == MOST
    assert set(granted.values()) == {0, 1}


def test_blocks_count_while_they_last_and_come_back_once(worker: WorkerProcess, client: BareClient) -> None:
    bucket = new_id("bucket")

    def result(type_: str, **fields: Any) -> dict[str, Any]:
        return client.result(type_, bucket, **fields)

    kept = [result("rate.lease", rules=RULES, requested=20, leaseMs=HOUR_MS) for _ in range(2)]
    lost = [result("rate.lease", rules=RULES, requested=20, leaseMs=1000) for _ in range(2)]
    assert [block["granted"] for block in (*kept, *lost)] == [20] * 4
    assert result("rate.acquire", rules=RULES, requested=MOST)["granted"] == MOST - 4 * 20
    worker.kill()
    worker.lose_state()
    worker.start()

    wait_until(lambda: result("rate.peek", rules=RULES)["leases"] == 2, "two blocks have run out", PATIENCE_S)
    assert result("rate.acquire", rules=RULES)["granted"] == 0
    for block in kept:
        assert result("rate.settle", leaseId=block["leaseId"], used=3) == {"refunded": 17, "charged": 0}
    for block in (*kept, *lost):
        again = client.refusal("rate.settle", bucket, leaseId=block["leaseId"], used=0)
        assert again["code"] == "RATE_GRANT_NOT_FOUND"
        fenced = {"leaseId": block["leaseId"], "fencingNumber": block["fencingNumber"]}
        assert result("rate.release", **fenced) == {"released": False}
        assert result("rate.renew", **fenced) == {"renewed": False}
    seen = result("rate.peek", rules=RULES)
    assert (seen["lostLeases"], seen["lostPermits"]) == (2, 40)
    assert result("rate.acquire", rules=RULES, requested=MOST)["granted"] == 2 * 17
