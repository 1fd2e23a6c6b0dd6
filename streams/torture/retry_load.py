"""The load of retry states: attempts are claimed, and each is a count that must not be given twice or left out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from schemas.topics import REPLIES
from streams.torture.command_load import RepeatingLoad, first_of
from streams.torture.load import LoadCommand, Proof

_OPEN_RUNS = 20


class RetryLoad(RepeatingLoad):
    """`retry.put` once for each run, then more claims than there are attempts."""

    name = "retries"
    share = 0.05
    repeated_share = 0.1

    def __init__(self, source: random.Random) -> None:
        super().__init__(source)
        self._runs: list[_Run] = []
        self._open = [self._new_run() for _ in range(_OPEN_RUNS)]
        self._asked: dict[str, _Run] = {}

    def make(self) -> LoadCommand:
        """See `RepeatingLoad`."""
        chosen = self.source.randrange(_OPEN_RUNS)
        run = self._open[chosen]
        made = self._claim(run) if run.is_put else self._put(run)
        if len(run.claims) == run.claims_due:
            self._open[chosen] = self._new_run()
        return made

    def saw(self, topic: str, body: dict[str, Any]) -> None:
        """See `LoadGenerator`."""
        run = self._asked.get(body.get("commandId") or "") if topic == REPLIES.name else None
        if run is not None:
            run.answers.setdefault(body["commandId"], []).append(body)

    def problems(self) -> list[str]:
        """Runs whose attempts were not given once each, in the order of their claims."""
        return first_of([f"{run.run_id}: {what}" for run in self._runs for what in run.wrong()])

    def _put(self, run: _Run) -> LoadCommand:
        run.is_put = True
        # In front of the claims, and all of them in the order in which they are made.
        made = self.command("retry.put", run.run_id, Proof.REPLY, misroute=False, params=run.params)
        self._asked[made.command_id or ""] = run
        return made

    def _claim(self, run: _Run) -> LoadCommand:
        made = self.command(
            "retry.claim", run.run_id, Proof.REPLY, misroute=False, maxAttempts=run.max_attempts
        )
        run.claims.append(made.command_id or "")
        self._asked[made.command_id or ""] = run
        return made

    def _new_run(self) -> _Run:
        run_id = self.new_id("retried")
        attempts = self.source.randrange(1, 12)
        run = _Run(run_id, {"of": run_id}, attempts, attempts + self.source.randrange(1, 4))
        self._runs.append(run)
        return run


@dataclass
class _Run:
    """One run, and what the answers tell of its attempts."""

    run_id: str
    params: Any
    max_attempts: int
    claims_due: int
    is_put: bool = False
    claims: list[str] = field(default_factory=list)
    """The commands, in the order in which they were made."""
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def wrong(self) -> list[str]:
        """What must not be, when every command has got its answer."""
        found = []
        for number, command_id in enumerate(self.claims, start=1):
            given = number <= self.max_attempts
            due = (given, min(number, self.max_attempts), self.params)
            for body in self.answers.get(command_id, []):
                result = body.get("result") or {}
                got = (result.get("claimed"), result.get("attempts"), result.get("params"))
                if got != due:
                    found.append(f"claim {number} of {self.max_attempts} got {body}")
        return found
