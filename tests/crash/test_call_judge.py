"""The judge of calls finds what it is there to find."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.call_judge import judge
from tests.crash.history import Place, Row

CALL = ("run", "tool", "hash")
LEASE_MS = 1000


class Log:
    """Commands, replies and changes of one call, by hand."""

    def __init__(self) -> None:
        self.commands: list[Row] = []
        self.replies: list[Row] = []
        self.changes: list[Row] = []

    def ask(self, id_: str, type_: str, reply: dict[str, Any], **fields: Any) -> None:
        """A command and its reply."""
        run, tool, digest = CALL
        names = {"runId": run, "toolId": tool, "inputHash": digest}
        self._add(self.commands, {"type": f"call.{type_}", "commandId": id_, **names, **fields})
        ok = "code" not in reply
        self._add(self.replies, {"commandId": id_, "ok": ok, "result" if ok else "error": reply})

    def claim(self, id_: str, fencing: int, at: int) -> None:
        """A lease that is given at a time, and stored."""
        answer = {"status": "claimed", "fencingNumber": fencing, "leaseExpiresAt": at + LEASE_MS}
        self.ask(id_, "claim", answer, owner=id_, leaseMs=LEASE_MS)
        self.store(fencing)

    def publish(self, id_: str, fencing: int, value: Any) -> None:
        """A publish that is accepted; nothing is stored by this."""
        self.ask(id_, "publish", {"published": True, "answered": 0}, fencingNumber=fencing, value=value)

    def store(self, fencing: int, **more: Any) -> None:
        """A change of the call's record."""
        key = b"run.call\0run\0tool\0hash\0"
        self._add(self.changes, {"v": 1, "number": 1, "fencing_number": fencing, **more}, key)

    def store_outcome(self, value: Any) -> None:
        """A change of the call's outcome."""
        self._add(self.changes, {"value": value}, b"run.call_result\0run\0" + (1).to_bytes(8, "big"))

    def violations(self) -> list[str]:
        """What the judge finds."""
        return list(judge(self.commands, self.replies, self.changes, [CALL]).violations)

    @staticmethod
    def _add(rows: list[Row], body: dict[str, Any], key: bytes | None = None) -> None:
        rows.append(Row(Place("t", 0, len(rows)), key, json.dumps(body).encode()))


def right() -> Log:
    """Three leases, the second renewed and the third after a release; one result."""
    log = Log()
    log.claim("a", 1, at=0)
    log.claim("a", 1, at=0)
    log.claim("b", 2, at=1000)
    log.ask("b2", "renew", {"leaseExpiresAt": 2500}, fencingNumber=2, leaseMs=LEASE_MS)
    log.ask("a2", "publish", {"code": "CALL_FENCED", "fencingNumber": 2}, fencingNumber=1, value="late")
    log.ask("b3", "publish", {"published": False, "answered": 0}, fencingNumber=2, error="e")
    log.claim("c", 3, at=2000)
    log.publish("c2", 3, "right")
    log.publish("c2", 3, "right")
    log.store(3, ok=True)
    log.store_outcome("right")
    log.ask("d", "claim", {"status": "hit", "ok": True, "value": "right"}, owner="d")
    return log


def test_what_is_right_passes_and_is_counted() -> None:
    log = right()
    verdict = judge(log.commands, log.replies, log.changes, [CALL])
    assert verdict.violations == []
    assert (verdict.passed_on, verdict.fenced) == (2, 1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda log: log.claim("thief", 3, at=2000), "was given to c and to thief"),
        (lambda log: log.claim("thief", 4, at=2500), "was alive"),
        (lambda log: log.claim("later", 4, at=9000), "under fencing number 3, of 4"),
        (lambda log: log.claim("later", 5, at=9000), "not all from 1 on"),
        (lambda log: log.publish("x", 2, "right"), "it was published as"),
        (lambda log: log.publish("x", 3, "other"), "it was published as"),
        (lambda log: log.ask("x", "claim", {"status": "hit", "ok": True, "value": 1}), "who asked got"),
        (lambda log: log.ask("x", "claim", {"code": "RUN_ENDED"}), "was refused"),
        (lambda log: log.ask("x", "renew", {"leaseExpiresAt": 9}, fencingNumber=7), "nobody got it"),
        (lambda log: log.store(2, ok=True), "went back"),
        (lambda log: log.store(3), "its stored states were"),
        (lambda log: log.store_outcome("right"), "stored were"),
        (lambda log: log.store_outcome("other"), "stored were"),
        (lambda log: log.changes.pop(), "stored were"),
    ],
)
def test_what_is_wrong_is_found(wrong: Callable[[Log], object], says: str) -> None:
    log = right()
    wrong(log)
    assert any(says in violation for violation in log.violations()), log.violations()


def test_a_call_without_a_result_is_found() -> None:
    log = Log()
    log.claim("a", 1, at=0)
    assert log.violations() == [f"{CALL}: it was never published"]
    assert judge([], [], [], [CALL]).violations == [f"{CALL}: it was never published"]


def test_a_lease_that_was_renewed_is_alive_for_longer() -> None:
    log = Log()
    log.claim("a", 1, at=0)
    log.ask("a2", "renew", {"leaseExpiresAt": 1900}, fencingNumber=1, leaseMs=LEASE_MS)
    log.claim("b", 2, at=1500)
    log.publish("b2", 2, 1)
    log.store(2, ok=True)
    log.store_outcome(1)
    assert len(log.violations()) == 1
    assert "was alive" in log.violations()[0]
