"""What calls and child results have to do, in the plainest way: one list of waits, looked at as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.property.run_model import WAITS, Refused, done
from tests.run_lane import DAY, MINUTE
from tests.small_lane import Reply

TIMEOUT = done(status="timeout")


@dataclass
class Call:
    """One call, from its first claim until the eviction."""

    fencing: int = 0
    owner: str | None = None
    expires: int | None = None
    """None: nobody holds it."""
    command: str | None = None
    """Which command got the lease."""
    outcome: dict[str, Any] | None = None
    """`{"value": ...}` or `{"error": ...}`."""

    def hit(self) -> Reply | None:
        """The answer to who asks for the result."""
        if self.outcome is None:
            return None
        return done(status="hit", ok="value" in self.outcome, **self.outcome)


@dataclass
class Wait:
    """A question that waits until `due`."""

    command: str
    due: int
    of: Any
    """A call (tool, hash), an event key, or None for the next event."""
    owner: str | None = None
    lease: int = 0


@dataclass
class Run:
    """One run from its first command until it is evicted, which is as far as this model goes."""

    known: bool = False
    submitted: bool = False
    events: int = 0
    ended: bool = False
    evicted: bool = False
    evict_at: int | None = None
    calls: dict[tuple[str, str], Call] = field(default_factory=dict)
    children: dict[str, dict[str, Any]] = field(default_factory=dict)
    waits: list[Wait] = field(default_factory=list)
    """The longest waiting first."""
    late: list[tuple[str, Reply]] = field(default_factory=list)

    def claim(
        self, command: str, now: int, call: tuple[str, str], owner: str, lease: int, stale: bool
    ) -> Reply | Refused:
        """`call.claim`"""
        if self.ended:
            return Refused("RUN_ENDED")
        if stale and self.submitted:
            return Refused("ATTEMPT_SUPERSEDED")
        known = self.calls.get(call)
        if known and (hit := known.hit()):
            return hit
        if known and known.expires and now < known.expires:
            return done(status="pending", owner=known.owner, leaseExpiresAt=known.expires)
        return self._take(command, now, call, owner, lease)

    def renew(
        self, now: int, call: tuple[str, str], fencing: int, lease: int, stale: bool
    ) -> Reply | Refused:
        """`call.renew`"""
        if self.ended:
            return Refused("RUN_ENDED")
        if stale and self.submitted:
            return Refused("ATTEMPT_SUPERSEDED")
        known = self.calls.get(call, Call())
        if known.expires is None or known.fencing != fencing:
            return Refused("CALL_FENCED", fencing=known.fencing)
        known.expires = now + lease
        return done(leaseExpiresAt=known.expires)

    def publish(
        self, now: int, call: tuple[str, str], fencing: int, outcome: dict[str, Any], release: bool, same: Any
    ) -> Reply | Refused:
        """`call.publish`; `same(a, b)` compares two outcomes."""
        if self.evicted:
            return Refused("RUN_ENDED")
        known = self.calls.get(call)
        if known is None or known.fencing != fencing:
            return Refused("CALL_FENCED", fencing=known.fencing if known else 0)
        release = release and "error" in outcome
        if known.outcome is not None:
            if same(known.outcome, outcome):
                return done(published=True, answered=0)
            return Refused("CALL_FENCED", fencing=known.fencing)
        if known.expires is None:
            return done(published=False, answered=0) if release else Refused("CALL_FENCED", fencing=fencing)
        known.expires = known.command = None
        if release:
            known.owner = None
            return done(published=False, answered=self._pass_on(call, now))
        known.outcome = outcome
        waiting = [wait for wait in self.waits if wait.of == call]
        for wait in waiting:
            self._answer(wait, known.hit())
        return done(published=True, answered=len(waiting))

    def await_call(
        self,
        command: str,
        now: int,
        call: tuple[str, str],
        timeout: int,
        owner: str | None,
        lease: int,
        stale: bool,
    ) -> Reply | Refused:
        """`call.await`; with an owner, also for the lease."""
        known = self.calls.get(call, Call())
        if hit := known.hit():
            return hit
        if self.ended:
            return TIMEOUT
        if owner and stale and self.submitted:
            return Refused("ATTEMPT_SUPERSEDED")
        if owner and not (known.expires and now < known.expires):
            return self._take(command, now, call, owner, lease)
        if owner and known.command == command:
            return done(status="claimed", fencingNumber=known.fencing, leaseExpiresAt=known.expires)
        if not timeout:
            return TIMEOUT
        self.waits.append(Wait(command, now + timeout, call, owner, lease))
        return WAITS

    def debug(self, now: int) -> Reply:
        """`call.debug`"""
        entries = []
        for (tool, digest), call in sorted(self.calls.items()):
            if call.outcome is not None:
                state = "published" if "value" in call.outcome else "failed"
            elif call.expires is None:
                state = "released"
            else:
                state = "claimed" if now < call.expires else "expired"
            entry = {"toolId": tool, "inputHash": digest, "state": state, "fencingNumber": call.fencing}
            entry |= {"owner": call.owner} if call.owner else {}
            entry |= {"leaseExpiresAt": call.expires} if call.expires else {}
            entries.append(entry)
        waiters = sum(isinstance(wait.of, tuple) for wait in self.waits)
        return done(size=len(entries), waiters=waiters, entries=entries)

    def set_child(self, now: int, key: str, data: Any, stored_at: int | None) -> Reply | Refused:
        """`child.terminal.set`"""
        if self.ended:
            return Refused("RUN_ENDED")
        self.known = True
        state = {"eventKey": key, "data": data, "storedAt": now if stored_at is None else stored_at}
        self.children[key] = state
        for wait in [wait for wait in self.waits if wait.of == key]:
            self._answer(wait, done(state=state))
        return done(state=state)

    def get_child(self, key: str) -> Reply:
        """`child.terminal.get`"""
        return done(state=self.children.get(key))

    def await_child(self, command: str, now: int, key: str, timeout: int) -> Reply:
        """`child.terminal.await`"""
        if key in self.children or self.ended or not timeout:
            return self.get_child(key)
        self.waits.append(Wait(command, now + timeout, key))
        return WAITS

    def await_event(self, command: str, now: int, timeout: int) -> None:
        """`events.list` of what comes after the last event."""
        if not self.ended:
            self.waits.append(Wait(command, now + timeout, None))

    def event(self) -> None:
        """Something appended an event."""
        self.known = True
        self.events += 1
        for wait in [wait for wait in self.waits if wait.of is None]:
            self._answer(wait, None)

    def end(self, now: int) -> None:
        """The run ended."""
        self.event()
        self.ended, self.evict_at = True, now + DAY
        for wait in list(self.waits):
            self._answer(wait, self._nothing(wait))

    def finish(self, now: int) -> None:
        """`run.finish` of a run that has ended."""
        self.evict_at = now + MINUTE

    def pass_time(self, now: int) -> None:
        """What happens up to `now`, in the order in which it is due; leases pass on before waits time out."""
        while True:
            dues: list[tuple[int, int, Any]] = [(wait.due, 1, wait) for wait in self.waits]
            dues += [
                (call.expires, 0, key)
                for key, call in self.calls.items()
                if call.expires is not None and any(w.of == key and w.owner for w in self.waits)
            ]
            nothing: tuple[int, int, Any] = (now + 1, 0, None)
            due, kind, what = min(dues, key=lambda each: each[:2], default=nothing)
            if due > now:
                break
            if kind == 1:
                self._answer(what, self._nothing(what))
            else:
                self._pass_on(what, due)
        if self.evict_at is not None and self.evict_at <= now:
            self.evicted, self.evict_at = True, None
            self.calls.clear()
            self.children.clear()

    def _take(self, command: str, now: int, call: tuple[str, str], owner: str, lease: int) -> Reply:
        self.known = True
        known = self.calls.setdefault(call, Call())
        known.fencing += 1
        known.owner, known.expires, known.command = owner, now + lease, command
        return done(status="claimed", fencingNumber=known.fencing, leaseExpiresAt=known.expires)

    def _pass_on(self, call: tuple[str, str], now: int) -> int:
        """Give the lease to the longest waiting one that would take it; returns how many got it."""
        for wait in self.waits:
            if wait.of == call and wait.owner:
                self._answer(wait, self._take(wait.command, now, call, wait.owner, wait.lease))
                return 1
        return 0

    def _nothing(self, wait: Wait) -> Reply | None:
        if isinstance(wait.of, tuple):
            return TIMEOUT
        return done(state=None) if wait.of is not None else None

    def _answer(self, wait: Wait, reply: Reply | None) -> None:
        """Answer a wait; None: whatever `events.list` says, which another model is about."""
        self.waits.remove(wait)
        if reply is not None:
            self.late.append((wait.command, reply))
