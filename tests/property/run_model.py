"""What a run has to do, in the plainest way: everything is kept in lists and looked at as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.run_lane import DAY, MINUTE
from tests.small_lane import Reply

KEPT = 500
MAX_WAITS = 1000

END_FIELDS = ("status", "result", "error", "totalRows", "durationMs", "playName")


def done(**result: Any) -> Reply:
    """The reply of a command that succeeded."""
    return {"ok": True, "result": result}


@dataclass
class Refused:
    """A refusal, of which the message is not compared."""

    code: str
    terminal: dict[str, Any] | None = None
    fencing: int | None = None
    """`error.fencingNumber`"""


WAITS = {"waits": True}


@dataclass
class Wait:
    """A question that waits until `due`."""

    command_id: str
    due: int
    after_seq: int | None
    """None: it waits for the end."""


@dataclass
class RunModel:
    """One run from its first command until it is forgotten."""

    events: list[dict[str, Any]] = field(default_factory=list)
    status: str | None = None
    submitted: Reply | None = None
    terminal: dict[str, Any] | None = None
    ended_at: int | None = None
    finish_at: int | None = None
    evict_at: int | None = None
    forget_at: int | None = None
    evicted: bool = False
    waits: list[Wait] = field(default_factory=list)
    late: list[tuple[str, Reply]] = field(default_factory=list)
    """Answers to waits, to be taken by who compares."""


class RunsModel:
    """All runs, and what each command must answer."""

    def __init__(self) -> None:
        self.runs: dict[str, RunModel] = {}

    def run(self, run: str) -> RunModel:
        """The run; a new one when it is not known."""
        return self.runs.setdefault(run, RunModel())

    def submit(self, run: str, command_id: str, now: int, instance: str) -> Reply | Refused:
        """`run.submit`"""
        model = self.run(run)
        if model.submitted and not model.evicted:
            return model.submitted
        if model.status not in (None, "running"):
            return Refused("RUN_ENDED", model.terminal)
        event = {"type": "status", "ts": now, "status": "running"}
        seq = self._event(run, command_id, event)
        model.submitted = done(runId=run, instanceId=instance, status="running", seq=seq)
        return model.submitted

    def append(
        self, run: str, command_id: str, now: int, event: dict[str, Any], *, stale: bool
    ) -> Reply | Refused:
        """`events.append` of an event with all its fields; `stale`: by a superseded attempt."""
        model = self.run(run)
        if model.status not in (None, "running"):
            return Refused("RUN_ENDED", model.terminal)
        if stale and model.submitted:
            return Refused("ATTEMPT_SUPERSEDED")
        ts = event.get("ts", now)
        return done(seq=self._event(run, command_id, {**event, "ts": ts}), ts=ts)

    def set_terminal(
        self, run: str, command_id: str, now: int, end: dict[str, Any], same_as: Any, *, stale: bool
    ) -> Reply | Refused:
        """`terminal.set`; `same_as(a, b)` compares two ends."""
        model = self.run(run)
        if model.terminal:
            if same_as(model.terminal, end):
                return done(terminal=model.terminal, repeated=True)
            return Refused("RUN_ENDED", model.terminal)
        if model.evicted:
            return Refused("RUN_ENDED")
        if stale and model.submitted:
            return Refused("ATTEMPT_SUPERSEDED")
        return done(terminal=self._end(run, command_id, now, end), repeated=False)

    def cancel(self, run: str, command_id: str, now: int, reason: str | None) -> Reply | Refused:
        """`run.cancel`"""
        model = self.run(run)
        if model.evicted:
            return Refused("RUN_ENDED")
        terminal = model.terminal or self._end(run, command_id, now, {"status": "cancelled", "error": reason})
        return done(status=model.status, terminal=terminal)

    def finish(self, run: str, now: int) -> Reply | Refused:
        """`run.finish`"""
        model = self.run(run)
        if model.status is None:
            return Refused("RUN_NOT_FOUND")
        if model.evicted:
            return Refused("RUN_ENDED")
        if model.terminal is None:
            return Refused("RUN_NOT_ENDED")
        if model.finish_at is None:
            model.finish_at = model.evict_at = now + MINUTE
        return done(evictsAt=model.finish_at)

    def list(
        self, run: str, command_id: str, now: int, after_seq: int, limit: int, timeout: int
    ) -> Reply | Refused:
        """`events.list`"""
        model = self.run(run)
        unseen = [event for event in self._kept(model) if event["seq"] > after_seq]
        if not unseen and timeout and model.status in (None, "running"):
            return self._wait(model, Wait(command_id, now + timeout, after_seq))
        reply = self._listing(model, unseen[:limit])
        if len(unseen) > limit:
            reply["result"]["more"] = True
        return reply

    def state(self, run: str, command_id: str, now: int, wait: int) -> Reply | Refused:
        """`run.status`"""
        model = self.run(run)
        if model.status is None:
            return Refused("RUN_NOT_FOUND")
        if wait and model.status == "running":
            return self._wait(model, Wait(command_id, now + wait, None))
        return self._status(run, model)

    def get_terminal(self, run: str) -> Reply:
        """`terminal.get`"""
        return done(terminal=self.run(run).terminal)

    def pass_time(self, now: int) -> None:
        """Time-outs, evictions and forgetting up to `now`."""
        for run, model in list(self.runs.items()):
            for wait in [wait for wait in model.waits if wait.due <= now]:
                model.waits.remove(wait)
                status = wait.after_seq is None
                reply = self._status(run, model) if status else self._listing(model, [])
                model.late.append((wait.command_id, reply))
            if model.evict_at is not None and model.evict_at <= now:
                model.terminal, model.evicted = None, True
                model.evict_at, model.forget_at = None, model.evict_at + 7 * DAY
            if model.forget_at is not None and model.forget_at <= now:
                del self.runs[run]

    def take_late(self) -> dict[str, Reply]:
        """The answers to waits since the last call."""
        late = [answer for model in self.runs.values() for answer in model.late]
        for model in self.runs.values():
            model.late.clear()
        assert len(dict(late)) == len(late)
        return dict(late)

    def _event(self, run: str, command_id: str, event: dict[str, Any]) -> int:
        model = self.run(run)
        seq = len(model.events) + 1
        model.events.append({"seq": seq, "runId": run, **event, "commandId": command_id})
        model.status = "running"
        for wait in [w for w in model.waits if w.after_seq is not None and w.after_seq < seq]:
            model.waits.remove(wait)
            model.late.append((wait.command_id, self._listing(model, model.events[-1:])))
        return seq

    def _end(self, run: str, command_id: str, now: int, end: dict[str, Any]) -> dict[str, Any]:
        model = self.run(run)
        fields = {name: end.get(name) for name in END_FIELDS}
        completed_at = end.get("completedAt", now)
        seq = self._event(run, command_id, {"type": "terminal", "ts": completed_at, **fields})
        model.status, model.ended_at, model.evict_at = end["status"], now, now + DAY
        model.terminal = {
            "runId": run,
            "seq": seq,
            **fields,
            "completedAt": completed_at,
            "commandId": command_id,
        }
        for wait in model.waits:
            reply = self._status(run, model) if wait.after_seq is None else self._listing(model, [])
            model.late.append((wait.command_id, reply))
        model.waits.clear()
        return model.terminal

    def _wait(self, model: RunModel, wait: Wait) -> Reply | Refused:
        if len(model.waits) >= MAX_WAITS:
            return Refused("TOO_MANY_WAITS")
        model.waits.append(wait)
        return WAITS

    def _kept(self, model: RunModel) -> list[dict[str, Any]]:
        return [] if model.evicted else model.events[-KEPT:]

    def _listing(self, model: RunModel, events: list[dict[str, Any]]) -> Reply:
        kept = self._kept(model)
        first = kept[0]["seq"] if kept else 0
        return done(events=list(events), latestSeq=len(model.events), firstSeq=first)

    def _status(self, run: str, model: RunModel) -> Reply:
        end = model.terminal or {}
        fields = {name: end.get(name) for name in ("result", "error", "totalRows", "durationMs")}
        return done(runId=run, status=model.status, latestSeq=len(model.events), **fields)
