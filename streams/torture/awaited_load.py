"""The load of named results: children and signals set them once, and runs wait for them before and after."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from schemas.topics import REPLIES
from streams.torture.command_load import RepeatingLoad, first_of
from streams.torture.load import LoadCommand, Proof

_RUNS = 8
_OPEN_RESULTS = 40
_AWAIT_MS = 3000


class AwaitedLoad(RepeatingLoad):
    """`child.terminal.*` and `run.signal`.

    Commands of one key stay in the order in which they are made. So who asks after the result was set must get it, and
    who asked before gets it or nothing.
    """

    name = "awaited results"
    share = 0.1

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._runs = [self.new_id("parent") for _ in range(_RUNS)]
        self._made = 0
        self._open = [self._new_result() for _ in range(_OPEN_RESULTS)]
        self._asked: dict[str, _Asked] = {}
        self._problems: list[str] = []

    def make(self) -> LoadCommand:
        """See `RepeatingLoad`."""
        chosen = self.source.randrange(_OPEN_RESULTS)
        result = self._open[chosen]
        made = self._step(result, result.steps.pop(0))
        if not result.steps:
            self._open[chosen] = self._new_result()
        return made

    def saw(self, topic: str, body: dict[str, Any]) -> None:
        """See `LoadGenerator`."""
        asked = self._asked.get(body.get("commandId") or "") if topic == REPLIES.name else None
        if asked is None:
            return
        if not body["ok"]:
            self._problems.append(f"{asked.name} was refused: {body['error']}")
        elif asked.type == "run.signal":
            if body["result"]["stored"] is not True:
                self._problems.append(f"{asked.name} was not stored")
        else:
            state = body["result"]["state"]
            if state is None and asked.must_have_it:
                self._problems.append(f"{asked.name} got nothing, and the result was there")
            if state is not None and state["data"] != asked.result.data:
                self._problems.append(f"{asked.name} got {state}, and set was {asked.result.data}")

    def problems(self) -> list[str]:
        """Answers that are not what was set."""
        return first_of(self._problems)

    def _step(self, result: _Result, step: str) -> LoadCommand:
        fields: dict[str, Any] = {"eventKey": result.event_key}
        if step == "child.terminal.set":
            fields["data"] = result.data
        elif step == "run.signal":
            fields |= {"payload": result.data, "signalType": "integration_event"}
        elif step == "child.terminal.await":
            fields["timeoutMs"] = self.source.randrange(_AWAIT_MS)
        result.is_set = result.is_set or step == result.setter
        waits = step == "child.terminal.await"
        made = self.command(step, result.run_id, Proof.REPLY, misroute=False, waits=waits, **fields)
        self._asked[made.command_id or ""] = _Asked(result, step, must_have_it=result.is_set)
        return made

    def _new_result(self) -> _Result:
        source = self.source
        self._made += 1
        setter = source.choice(["child.terminal.set", "run.signal"])
        before = ["child.terminal.await"] * source.randrange(3)
        after = source.choices(["child.terminal.await", "child.terminal.get"], k=source.randrange(1, 4))
        data = {"number": self._made, "by": setter}
        return _Result(
            source.choice(self._runs), f"result-{self._made}", data, setter, [*before, setter, *after]
        )


@dataclass
class _Result:
    """One named result of a run."""

    run_id: str
    event_key: str
    data: Any
    setter: str
    """The type of the command that sets it."""
    steps: list[str]
    """The types of the commands that are still to be made of it."""
    is_set: bool = False
    """The command that sets it was made."""


@dataclass(frozen=True)
class _Asked:
    """A command that was made, to understand its answer."""

    result: _Result
    type: str
    must_have_it: bool

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.type} of {self.result.event_key} of {self.result.run_id}"
