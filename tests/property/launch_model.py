"""What is kept about a run's launch, sessions, instance and traces, in the plainest way: values with an end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.property.run_model import Refused, done
from tests.run_lane import DAY, HOUR, MINUTE
from tests.small_lane import Reply

MAX_BYTES = 110_000
KEPT_TRACES = 200
LISTED_BYTES = 768 * 1024


@dataclass
class Kept:
    """Something that is kept until a time."""

    value: Any
    until: int


@dataclass
class LaunchedRun:
    """What is kept of one run."""

    known: bool = False
    ended: bool = False
    evict_at: int | None = None
    evicted: bool = False
    attempt: int = 0
    kept: dict[str, Kept] = field(default_factory=dict)
    """`retry` (params, attempts), `sessions`, `instance`."""
    traces: list[dict[str, Any]] = field(default_factory=list)

    def get(self, what: str, now: int) -> Any:
        """The value, None when there is none or when its time is over."""
        found = self.kept.get(what)
        return found.value if found is not None and now < found.until else None

    def write(self) -> Refused | None:
        """What a write does first: refuse after the end, else make the run known."""
        if self.ended:
            return Refused("RUN_ENDED")
        self.known = True
        return None


def clamp(value: Any, low: int, high: int, default: int) -> int:
    """A time to live."""
    return default if value is None else min(max(value, low), high)


class LaunchModel:
    """All runs, and what each command must answer. `now` is the time of the command."""

    def __init__(self) -> None:
        self.runs: dict[str, LaunchedRun] = {}

    def run(self, run: str) -> LaunchedRun:
        """The run; a new one when it is not known."""
        return self.runs.setdefault(run, LaunchedRun())

    def put_retry(self, run: str, now: int, params: dict[str, Any], size: int, ttl: Any) -> Reply | Refused:
        """`retry.put` of the fields in `params`, which would take `size` bytes."""
        model = self.run(run)
        refused = self._refuse_retry(model, params, size)
        if refused is not None:
            return refused
        attempts = self._put_retry(model, now, params, clamp(ttl, MINUTE, HOUR, HOUR))
        return done(bytes=size, expiresAt=model.kept["retry"].until, retryAttempts=attempts)

    def put_launch(
        self,
        run: str,
        now: int,
        params: dict[str, Any],
        size: int,
        ttl: Any,
        sessions: list[Any],
        sessions_ttl: Any,
    ) -> Reply | Refused:
        """`launch.put`: as `retry.put` and `sessions.put`, or neither."""
        model = self.run(run)
        refused = self._refuse_retry(model, params, size)
        if refused is not None:
            return refused
        self._put_retry(model, now, params, clamp(ttl, MINUTE, HOUR, HOUR))
        self._put_sessions(model, now, sessions, sessions_ttl)
        return done(
            sessionCount=len(sessions),
            retryExpiresAt=model.kept["retry"].until,
            dbSessionsExpiresAt=model.kept["sessions"].until,
        )

    def claim(self, run: str, now: int, max_attempts: float) -> Reply | Refused:
        """`retry.claim`"""
        model = self.run(run)
        if model.ended:
            return Refused("RUN_ENDED")
        retry = model.get("retry", now)
        if retry is None:
            return done(claimed=False, attempts=0)
        claimed = retry["attempts"] < max_attempts
        if claimed:
            retry["attempts"] += 1
            model.kept["retry"].until = now + HOUR
        return done(claimed=claimed, attempts=retry["attempts"], **retry["params"])

    def put_sessions(self, run: str, now: int, sessions: list[Any], ttl: Any) -> Reply | Refused:
        """`sessions.put`"""
        model = self.run(run)
        refused = model.write()
        if refused is not None:
            return refused
        self._put_sessions(model, now, sessions, ttl)
        return done(sessionCount=len(sessions), expiresAt=model.kept["sessions"].until)

    def get_sessions(self, run: str, now: int) -> Reply | Refused:
        """`sessions.get`"""
        model = self.run(run)
        sessions = model.get("sessions", now)
        if sessions is None:
            return Refused("SESSIONS_NOT_FOUND")
        return done(sessions=sessions, expiresAt=model.kept["sessions"].until)

    def submit(self, run: str, now: int, sessions: list[Any] | None) -> None:
        """`run.submit`, of which the reply is not compared here; only the first one counts."""
        model = self.run(run)
        if model.write() is not None or model.kept.get("submitted"):
            return
        model.kept["submitted"] = Kept(True, now)
        model.attempt = max(1, model.attempt)
        if sessions is not None:
            self._put_sessions(model, now, sessions, None)

    def put_instance(
        self, run: str, now: int, instance: str, attempt: int | None, ttl: Any
    ) -> Reply | Refused:
        """`instance.put`"""
        model = self.run(run)
        if not model.ended and attempt is not None and attempt < model.attempt:
            return Refused("ATTEMPT_SUPERSEDED")
        refused = model.write()
        if refused is not None:
            return refused
        model.attempt = attempt or model.attempt
        ttl = clamp(ttl, MINUTE, HOUR, HOUR)
        value = {"instanceId": instance, "attempt": attempt, "ttlMs": ttl}
        model.kept["instance"] = Kept(value, now + ttl)
        return done(instance=value)

    def get_instance(self, run: str, now: int) -> Reply:
        """`instance.get`"""
        return done(instance=self.run(run).get("instance", now))

    def add_trace(self, run: str, trace: dict[str, Any]) -> Reply | Refused:
        """`trace.add`"""
        model = self.run(run)
        if model.evicted:
            return Refused("RUN_ENDED")
        if trace.get("runId", run) != run:
            return Refused("INVALID_TRACE")
        model.known = True
        model.traces.append({**trace, "runId": run})
        return done(count=min(len(model.traces), KEPT_TRACES))

    def list_traces(self, run: str) -> Reply:
        """`trace.list`; no trace of these is large."""
        traces = [] if self.run(run).evicted else self.run(run).traces[-KEPT_TRACES:]
        return done(traces=sorted(traces, key=lambda trace: trace["ts"]))

    def end(self, run: str, now: int) -> None:
        """`run.cancel`"""
        model = self.run(run)
        if not model.ended:
            model.known = model.ended = True
            model.evict_at = now + DAY

    def finish(self, run: str, now: int) -> None:
        """`run.finish`, of a run that has ended."""
        model = self.run(run)
        if model.ended and not model.evicted:
            assert model.evict_at is not None
            model.evict_at = min(model.evict_at, now + MINUTE)

    def pass_time(self, now: int) -> None:
        """Evictions up to `now`."""
        for model in self.runs.values():
            if model.evict_at is not None and model.evict_at <= now:
                model.evict_at, model.evicted = None, True
                model.kept.clear()
                model.traces.clear()

    def _refuse_retry(self, model: LaunchedRun, params: dict[str, Any], size: int) -> Refused | None:
        if model.ended:
            return Refused("RUN_ENDED")
        if not {"params", "paramsRef"} & params.keys():
            return Refused("RETRY_STATE_REQUIRED")
        if size > MAX_BYTES:
            return Refused("RETRY_STATE_TOO_LARGE")
        return model.write()

    def _put_retry(self, model: LaunchedRun, now: int, params: dict[str, Any], ttl: int) -> int:
        before = model.get("retry", now)
        attempts: int = before["attempts"] if before else 0
        fields = {name: params.get(name) for name in ("params", "paramsRef", "paramsBytes")}
        model.kept["retry"] = Kept({"params": fields, "attempts": attempts}, now + ttl)
        return attempts

    def _put_sessions(self, model: LaunchedRun, now: int, sessions: list[Any], ttl: Any) -> None:
        model.kept["sessions"] = Kept(sessions, now + clamp(ttl, MINUTE, 30 * MINUTE, 10 * MINUTE))
