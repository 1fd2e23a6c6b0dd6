"""The load of `run-commands`: runs that executors execute, runs that the client drives, and all that is odd."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from schemas.json_codec import encode
from schemas.topics import RUN_EVENTS
from streams.torture import executed_runs
from streams.torture.command_load import CommandLoad, first_of
from streams.torture.load import LoadCommand, Proof

DRIVEN = "run/"
"""How the ids of the runs begin that no executor knows: everything that happens to them was sent here."""
_OPEN_RUNS = 200
_BAD_SHARE = 0.01
_ODD_SHARE = 0.06
_EXECUTED_SHARE = 0.03
_CANCELLED_SHARE = 0.15


class RunLoad(CommandLoad):
    """Submits, events, ends, cancels, questions, repeats, and what cannot be read."""

    name = "run"

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._driven = [_DrivenRun(self) for _ in range(_OPEN_RUNS)]
        self._executed: dict[str, _ExecutedRun] = {}
        self._to_cancel: deque[str] = deque()

    def next(self) -> LoadCommand:
        """See `LoadGenerator`."""
        kind = self.source.random()
        if kind < _BAD_SHARE:
            return self._bad()
        if kind < _ODD_SHARE:
            return self._odd()
        if kind < _ODD_SHARE + _EXECUTED_SHARE:
            return self._submit_or_cancel()
        chosen = self.source.randrange(_OPEN_RUNS)
        made = self._driven[chosen].next()
        if self._driven[chosen].is_over:
            self._driven[chosen] = _DrivenRun(self)
        self.recent.append(made)
        return made

    def saw(self, topic: str, body: dict[str, Any]) -> None:
        """See `LoadGenerator`."""
        run = self._executed.get(body.get("runId", "")) if topic == RUN_EVENTS.name else None
        if run is not None:
            run.events.append(body)

    def unfinished(self) -> int:
        """Runs that executors have not ended yet."""
        return sum(not run.has_ended for run in list(self._executed.values()))

    def problems(self) -> list[str]:
        """Executed runs that are not what their parameters say, report by report."""
        return first_of([text for run_id, run in self._executed.items() for text in run.problems(run_id)])

    def _submit_or_cancel(self) -> LoadCommand:
        if self._to_cancel and self.source.random() < 0.5:
            return self.command("run.cancel", self._to_cancel.popleft(), Proof.REPLY, reason="torture")
        run_id = self.new_id("executed")
        steps, pause_ms = self.source.randrange(1, 6), self.source.randrange(10, 150)
        run = _ExecutedRun(steps, fails=self.source.random() < 0.1)
        if self.source.random() < _CANCELLED_SHARE:
            run.may_be_cancelled = True
            self._to_cancel.append(run_id)
        self._executed[run_id] = run
        params = {"steps": steps, "pauseMs": pause_ms, "fails": run.fails}
        return self.command("run.submit", run_id, Proof.REPLY, name=executed_runs.NAME, params=params)

    def _odd(self) -> LoadCommand:
        """A question, or a command that comes again."""
        if not self.recent or self.source.random() < 0.4:
            run = self.source.choice(self._driven)
            if self.source.random() < 0.2:
                return self.command("run.status", run.run_id, Proof.REPLY)
            return self.command("events.list", run.run_id, Proof.REPLY, afterSeq=0, limit=3)
        return self.again()

    def _bad(self) -> LoadCommand:
        run_id = self.source.choice(self._driven).run_id
        command = {"type": "events.append", "commandId": self.new_id("bad"), "runId": run_id}
        value = self.source.choice(
            [
                b"not JSON",
                None,
                encode({**command, "type": "no.such"}),
                encode({**command, "runId": f"{run_id}-other"}),
                encode({**command, "commandId": None}),
            ]
        )
        return LoadCommand("bad input", run_id.encode(), value, None, Proof.DEAD_LETTER, False)


class _DrivenRun:
    """A run whose events and end the client sends; no executor knows its name."""

    def __init__(self, load: RunLoad) -> None:
        source = load.source
        self.run_id = f"{DRIVEN}{source.getrandbits(64):016x}"
        self.is_over = False
        self._load = load
        self._sent = 0
        self._is_submitted = source.random() < 0.5
        self._length = source.randrange(5, 120)
        self._is_cancelled = source.random() < 0.3

    def next(self) -> LoadCommand:
        """The next command of the run; after its end, three that come too late."""
        load, number = self._load, self._sent
        self._sent += 1
        if number == 0 and self._is_submitted:
            return load.command("run.submit", self.run_id, Proof.EVENT, name="driven", misroute=False)
        if number == self._length:
            if self._is_cancelled:
                return load.command("run.cancel", self.run_id, Proof.EVENT, misroute=False)
            return load.command("terminal.set", self.run_id, Proof.EVENT, status="completed", misroute=False)
        self.is_over = number >= self._length + 3
        proof = Proof.REPLY if number > self._length else Proof.EVENT
        event = {"type": "log", "line": f"line {number}"}
        if number % 7 == 3:
            event = {"type": "progress", "status": f"at {number}"}
        return load.command("events.append", self.run_id, proof, event=event)


class _ExecutedRun:
    """What came of a run that executors execute."""

    def __init__(self, steps: int, *, fails: bool) -> None:
        self.steps = steps
        self.fails = fails
        self.may_be_cancelled = False
        self.events: list[dict[str, Any]] = []

    @property
    def has_ended(self) -> bool:
        """Whether its end was seen."""
        return bool(self.events) and self.events[-1]["type"] == "terminal"

    def problems(self, run_id: str) -> list[str]:
        """Reports that are missing, doubled or in another order, and an end that is not the right one."""
        lines = [event["line"] for event in self.events if event["type"] == "log"]
        due = [executed_runs.step_line(number) for number in range(1, self.steps + 1)]
        ends = [event for event in self.events if event["type"] == "terminal"]
        if len(ends) != 1:
            return [f"{run_id} has {len(ends)} ends, not 1"]
        (end,) = ends
        if end["status"] == "cancelled" and self.may_be_cancelled:
            right = lines == due[: len(lines)]
        elif self.fails:
            right = lines == due and end["status"] == "failed" and executed_runs.FAILURE in end["error"]
        else:
            right = lines == due and end["status"] == "completed" and end["result"] == {"steps": self.steps}
        return [] if right else [f"{run_id} ended as {end['status']} after {lines}, due were {due}"]
