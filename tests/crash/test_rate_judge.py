"""The judge of rate limits: silent about what the machine does, and not about grants beyond a rule."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.crash.history import Place, Row
from tests.crash.rate_judge import Verdict, judge
from tests.rate_lane import RateLane, rule

RULES = {
    "window": [rule(20, 500), rule(60, 3000, "long")],
    "sliding": [rule(20, 700, kind="sliding")],
    "bucket": [rule(15, 400, kind="bucket")],
    "bounded": [rule(10**6, 1000, maxConcurrency=6)],
}


class History:
    """What happened to a lane in memory, as the rows of topics."""

    def __init__(self) -> None:
        self.lane = RateLane()
        self.commands: list[tuple[int, dict[str, Any]]] = []
        self.replies: list[dict[str, Any]] = []
        self.changelog: dict[bytes, bytes | None] = {}

    def send(self, type_: str, key: str, **fields: Any) -> dict[str, Any]:
        """Apply a command and keep it with its answer."""
        command_id = f"c{len(self.commands)}"
        body = {"type": type_, "bucketId": key, "commandId": command_id, **fields}
        self.commands.append((self.lane.now, body))
        answer = self.lane.send(type_, key, command_id=command_id, **fields)
        self.replies.append({"commandId": command_id, **answer})
        return answer

    def verdict(self) -> Verdict:
        """What the judge says."""
        self.changelog.update(self.lane.state)
        return judge(
            [
                (at, _row("rate-commands", number, None, body))
                for number, (at, body) in enumerate(self.commands)
            ],
            [_row("replies", number, None, body) for number, body in enumerate(self.replies)],
            [
                Row(Place("state-changelog", 0, number), key, value)
                for number, (key, value) in enumerate(self.changelog.items())
            ],
        )


def _row(topic: str, number: int, key: bytes | None, body: dict[str, Any]) -> Row:
    return Row(Place(topic, 0, number), key, json.dumps(body).encode())


def played(seed: int) -> History:
    """A random history in which every lease has ended."""
    history, source = History(), Random(seed)
    open_leases: list[tuple[str, dict[str, Any]]] = []
    for _ in range(400):
        history.lane.pass_time(source.choice([0, 1, 5, 30, 200]))
        bucket = source.choice(list(RULES))
        if open_leases and source.random() < 0.4:
            bucket, given = open_leases.pop(source.randrange(len(open_leases)))
            fields = {"leaseId": given["leaseId"]}
            if source.random() < 0.3:
                continue
            if source.random() < 0.3:
                history.send("rate.release", bucket, fencingNumber=given["fencingNumber"], **fields)
            else:
                history.send("rate.settle", bucket, used=source.randint(0, given["granted"]), **fields)
            continue
        type_ = source.choice(["rate.acquire", "rate.lease"])
        answer = history.send(
            type_, bucket, rules=RULES[bucket], requested=source.randint(1, 6), leaseMs=1000
        )
        if "leaseId" in answer["result"]:
            open_leases.append((bucket, answer["result"]))
        elif answer["result"]["granted"] and source.random() < 0.2:
            history.send("rate.settle", bucket, used=0, acquireCommandId=history.commands[-1][1]["commandId"])
    history.lane.pass_time(2000)
    return history


def test_what_the_machine_does_is_right_and_fills_every_rule() -> None:
    full, held = set(), set()
    for seed in range(8):
        verdict = played(seed).verdict()
        assert verdict.violations == []
        full |= {bucket for (bucket, rule), most in verdict.fullest.items() if most == rule.permits}
        held |= {bucket for (bucket, rule), most in verdict.most_held.items() if most == rule.concurrency}
    assert full >= {"window", "sliding", "bucket"}
    assert held == {"bounded"}


def granted(history: History, bucket: str, type_: str, **fields: Any) -> dict[str, Any]:
    """A further grant that the machine did not make: its result."""
    command_id = f"extra{len(history.commands)}"
    now = history.lane.now
    body = {"type": type_, "bucketId": bucket, "commandId": command_id, "rules": RULES[bucket], **fields}
    result = {"granted": fields["requested"], "waitMs": 0, "grantedAt": now}
    if type_ == "rate.lease" or bucket == "bounded":
        result |= {"leaseId": f"x-{command_id}", "fencingNumber": 10**9 + len(history.commands)}
        result["expiresAt"] = now + 1000
    history.commands.append((now, body))
    history.replies.append({"commandId": command_id, "ok": True, "result": result})
    return result


def fill(history: History, bucket: str) -> None:
    """Let a new history have all of a bucket's permits granted."""
    most = RULES[bucket][0].get("maxConcurrency") or RULES[bucket][0]["requestsPerWindow"]
    assert granted_by(history.send("rate.acquire", bucket, rules=RULES[bucket], requested=most)) == most


def granted_by(answer: dict[str, Any]) -> Any:
    """How many permits an answer has."""
    return answer["result"]["granted"]


@pytest.mark.parametrize("bucket", RULES)
@pytest.mark.parametrize("type_", ["rate.acquire", "rate.lease"])
def test_one_permit_more_is_found(bucket: str, type_: str) -> None:
    history = History()
    fill(history, bucket)
    history.lane.pass_time(5)
    granted(history, bucket, type_, requested=1)
    assert any("permits at" in what or "in leases at" in what for what in history.verdict().violations)


@pytest.mark.parametrize("bucket", ["window", "sliding", "bucket"])
def test_a_block_counts_until_it_has_ended_and_a_window_longer(bucket: str) -> None:
    most, window_ms = RULES[bucket][0]["requestsPerWindow"], RULES[bucket][0]["windowMs"]
    for settled_after, asked_after, is_wrong in (
        (None, 900, True),
        (100, 10, True),
        (100, 3 * window_ms, False),
    ):
        history = History()
        # A window of the kind `window` begins with the first grant.
        history.lane.now -= history.lane.now % 1000
        lease = history.send("rate.lease", bucket, rules=RULES[bucket], requested=most, leaseMs=1000)[
            "result"
        ]
        if settled_after is not None:
            history.lane.pass_time(settled_after)
            history.send("rate.settle", bucket, leaseId=lease["leaseId"], used=most)
        history.lane.pass_time(asked_after)
        granted(history, bucket, "rate.acquire", requested=1)
        history.lane.pass_time(5000)
        assert any("permits at" in what for what in history.verdict().violations) is is_wrong, asked_after


def test_a_renewed_block_counts_for_longer() -> None:
    for renewed in (False, True):
        history = History()
        given = granted(history, "sliding", "rate.lease", requested=20)
        if renewed:
            until = given["expiresAt"] + 5000
            history.commands.append(
                (
                    history.lane.now,
                    {
                        "type": "rate.renew",
                        "bucketId": "sliding",
                        "commandId": "renew",
                        "leaseId": given["leaseId"],
                    },
                )
            )
            answer = {"renewed": True, "expiresAt": until, "validMs": 6000}
            history.replies.append({"commandId": "renew", "ok": True, "result": answer})
        history.lane.pass_time(3000)
        granted(history, "sliding", "rate.acquire", requested=1)
        assert any("permits at" in what for what in history.verdict().violations) is renewed


def _answer_again(history: History) -> None:
    history.replies.append({**history.replies[0], "ok": True, "result": {"granted": 1}})


def _forget_an_answer(history: History) -> None:
    history.replies.pop()


def _answer_nobody(history: History) -> None:
    history.replies.append({"commandId": "nobody", "ok": True, "result": {}})


def _give_a_number_twice(history: History) -> None:
    leases = [reply["result"] for reply in history.replies if "fencingNumber" in reply.get("result", {})]
    granted(history, "bounded", "rate.acquire", requested=1)["fencingNumber"] = leases[0]["fencingNumber"]
    history.commands[-1][1]["bucketId"] = next(
        body["bucketId"] for _, body in history.commands if body["type"] == "rate.lease"
    )


def _count_too_many(history: History) -> None:
    history.changelog[b"rate.bucket\0b\0"] = (
        b'{"v":1,"next_number":1,"rules":{"window:500:r":{"permits":20,"used":19,"reserved":2}}}'
    )


def _hold_too_many(history: History) -> None:
    history.changelog[b"rate.bucket\0b\0"] = (
        b'{"v":1,"next_number":1,"rules":{"window:500:r":{"permits":20,"concurrency":2,"held":3}}}'
    )


def _leave_a_lease(history: History) -> None:
    history.changelog[b"rate.lease\0b\0" + bytes(16)] = b'{"v":1,"permits":20,"granted_at":1,"limits":[]}'


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_answer_again, "was answered"),
        (_forget_an_answer, "was never answered"),
        (_answer_nobody, "which nobody has sent"),
        (_give_a_number_twice, "a fencing number was given twice"),
        (_count_too_many, "counts 21 permits of 20"),
        (_hold_too_many, "counts 3 in leases, of 2"),
        (_leave_a_lease, "is left"),
    ],
)
def test_what_else_is_wrong_is_found(harm: Callable[[History], None], said: str) -> None:
    history = played(1)
    harm(history)
    assert any(said in what for what in history.verdict().violations)
