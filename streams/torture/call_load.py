"""The load of calls: many claim, some die with the lease or stand still, and one result is published."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from schemas.errors import ErrorCode
from schemas.topics import REPLIES
from streams.torture.command_load import RepeatingLoad, first_of
from streams.torture.load import LoadCommand, Proof

CALLING = "calling/"
"""How the ids of the runs begin that have calls."""
_RUNS = 8
_OPEN_CALLS = 30
_LEASE_MS = 2000
_AWAIT_MS = 3000
_NEXT_STEPS = ("publish", "publish", "publish", "renew", "release", "die")
_MAY_BE_FENCED = {"call.publish", "call.renew"}


class CallLoad(RepeatingLoad):
    """Claims, renewals, results, and claimers that are heard of no more."""

    name = "calls"
    share = 0.12

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._runs = [self.new_id(CALLING) for _ in range(_RUNS)]
        self._made = 0
        self._calls: list[_Call] = []
        self._open = [self._new_call() for _ in range(_OPEN_CALLS)]
        self._asked: dict[str, _Asked] = {}

    def saw(self, topic: str, body: dict[str, Any]) -> None:
        """See `LoadGenerator`."""
        asked = self._asked.get(body.get("commandId") or "") if topic == REPLIES.name else None
        if asked is None:
            return
        call, result = asked.call, body.get("result") or {}
        if not body["ok"]:
            if asked.type not in _MAY_BE_FENCED or body["error"]["code"] != ErrorCode.CALL_FENCED:
                call.problems.append(f"{asked.type} was refused: {body['error']}")
        elif asked.type == "call.publish":
            if result["published"]:
                call.is_over = True
                call.published.append((asked.fencing, asked.value))
        elif asked.type == "call.renew":
            return
        elif result["status"] == "hit":
            call.is_over = True
            call.hits.append(result["value"])
        elif result["status"] == "claimed":
            self._take_lease(asked, body["commandId"], result["fencingNumber"])

    def problems(self) -> list[str]:
        """Leases that two got, and results that are not the one that was published."""
        return first_of([f"{call.name}: {what}" for call in self._calls for what in call.wrong()])

    def make(self) -> LoadCommand:
        """See `RepeatingLoad`."""
        source = self.source
        chosen = source.randrange(_OPEN_CALLS)
        if self._open[chosen].is_over and source.random() < 0.3:
            self._open[chosen] = self._new_call()
        call = self._open[chosen]
        then = source.choice(_NEXT_STEPS)
        fields: dict[str, Any] = {"owner": f"owner-{source.randrange(40)}", "leaseMs": _LEASE_MS}
        if source.random() < 0.3:
            fields |= {"claim": True, "timeoutMs": _AWAIT_MS}
            return self._ask(_Asked(call, "call.await", then), waits=True, **fields)
        return self._ask(_Asked(call, "call.claim", then), **fields)

    def _take_lease(self, asked: _Asked, command_id: str, fencing: int) -> None:
        """Note who has the lease, and do what a claimer does with it; the answer may come several times."""
        call = asked.call
        if fencing in call.grants:
            if call.grants[fencing] != command_id:
                call.problems.append(f"{call.grants[fencing]} and {command_id} got lease {fencing}")
            return
        call.grants[fencing] = command_id
        if asked.then == "renew":
            renewal = _Asked(call, "call.renew")
            self.due.append(
                self._ask(
                    renewal, f"{command_id}-{fencing}-renewed", fencingNumber=fencing, leaseMs=_LEASE_MS
                )
            )
        if asked.then in ("publish", "renew"):
            value = {"fencingNumber": fencing, "by": command_id}
            result = _Asked(call, "call.publish", fencing=fencing, value=value)
            self.due.append(
                self._ask(result, f"{command_id}-{fencing}-published", fencingNumber=fencing, value=value)
            )
        elif asked.then == "release":
            given_back = _Asked(call, "call.publish", fencing=fencing)
            fields: dict[str, Any] = {"fencingNumber": fencing, "error": "busy", "onFailure": "release"}
            self.due.append(self._ask(given_back, f"{command_id}-{fencing}-released", **fields))

    def _ask(
        self, asked: _Asked, command_id: str | None = None, *, waits: bool = False, **fields: Any
    ) -> LoadCommand:
        call = asked.call
        fields |= {"toolId": "tool", "inputHash": call.input_hash}
        made = self.command(
            asked.type, call.run_id, Proof.REPLY, command_id=command_id, waits=waits, **fields
        )
        self._asked[made.command_id or ""] = asked
        return made

    def _new_call(self) -> _Call:
        self._made += 1
        call = _Call(self.source.choice(self._runs), f"{self._made:06}")
        self._calls.append(call)
        return call


@dataclass
class _Call:
    """One call, and what the answers tell of it."""

    run_id: str
    input_hash: str
    is_over: bool = False
    grants: dict[int, str] = field(default_factory=dict)
    """By fencing number: the command that got it."""
    published: list[tuple[int, Any]] = field(default_factory=list)
    """Fencing number and value, once for each answer."""
    hits: list[Any] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """For people."""
        return f"call {self.input_hash} of {self.run_id}"

    def wrong(self) -> list[str]:
        """What must not be, when every command has got its answer."""
        found = list(self.problems)
        if sorted(self.grants) != list(range(1, len(self.grants) + 1)):
            found.append(f"the leases {sorted(self.grants)} are not numbered from 1 on")
        results = [
            result for number, result in enumerate(self.published) if result not in self.published[:number]
        ]
        if len(results) > 1:
            found.append(f"several results were published: {results}")
        if results and results[0][0] != max(self.grants):
            found.append(f"{results[0]} was published, and lease {max(self.grants)} was given")
        if wrong := [hit for hit in self.hits if not results or hit != results[0][1]]:
            found.append(f"who asked got {wrong[0]}, and published was {results}")
        return found


@dataclass(frozen=True)
class _Asked:
    """A command that was made, to understand its answer."""

    call: _Call
    type: str
    then: str = ""
    """Of a claim: what its owner does with the lease."""
    fencing: int = 0
    value: Any = None
