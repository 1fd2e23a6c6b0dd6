"""The rule about permits: what was granted of each rule never exceeds it (spec coordinator 7, docs/rates.md).

The sums are made of grants alone, as the changelog has them, and of what commands say was used of them; what the
bucket itself has counted is not looked at, but for where its fixed windows begin.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from agents.rate.windows import DAY_MS
from schemas.topics import STATE_CHANGELOG
from streams.verify.findings import Place, Rule, Tally
from streams.verify.rate.rows import KINDS, StartSeen
from streams.verify.rate.uses import RuleUses, Use

PERMITS = Rule(
    "permits",
    "No window of any rule of a rate bucket has more permits granted in it than the rule allows, counting blocks as "
    "long as they last, and no more are in leases at a time than its `maxConcurrency`.",
    "fixed windows whose beginning is stored no longer, token buckets whose limit has changed, and grants that were "
    "settled by commands that retention has removed",
)

PhaseOf = Callable[[int], int | None]
"""Where, modulo their length, the windows begin in which a time lies; None when that is not known."""

_RESERVE, _FREE, _CHARGE, _CHECK = range(4)


class _Step(NamedTuple):
    """Something that happens to a rule's count."""

    at: int
    kind: int
    permits: int
    use: Use


def check_permits(rule: RuleUses, starts: Sequence[StartSeen], partition: int, tally: Tally) -> None:
    """Hold the grants of one rule of one bucket against it. `starts`: where its window began, as it was stored."""
    tally.checked(PERMITS, len(rule.uses))
    for last, held, most in _too_many_held(rule.uses):
        what = f"brings the permits in leases to {held}, and the rule allows {most} at a time"
        tally.violation(PERMITS, Place(STATE_CHANGELOG.name, partition, last.offset), what)
    if not rule.window_ms:
        return
    kind = KINDS[rule.kind]
    if kind == "bucket" and len({use.most for use in rule.uses}) > 1:
        tally.unknown(PERMITS, "token buckets whose limit has changed", len(rule.uses))
        return
    phase_of = phases(rule, starts) if kind == "window" else None
    for last, count, most in _too_many(rule, kind, phase_of, tally):
        what = f"brings the permits of a {kind} of {rule.window_ms} ms to {count}, and the rule allows {most}"
        tally.violation(PERMITS, Place(STATE_CHANGELOG.name, partition, last.offset), what)


def check_starts(starts: Sequence[StartSeen], partition: int, tally: Tally) -> None:
    """Fixed windows follow each other without a gap, until nobody has used the rule for a day."""
    for before, after in pairwise(starts):
        tally.checked(PERMITS)
        moved = after.start - before.start
        if moved < 0 or (moved % after.window_ms and moved < after.window_ms + DAY_MS):
            place, earlier = (Place(STATE_CHANGELOG.name, partition, seen.offset) for seen in (after, before))
            what = f"begins {moved} ms after the one before, and windows have {after.window_ms} ms"
            tally.violation(PERMITS, place, what, earlier)


def phases(rule: RuleUses, starts: Sequence[StartSeen]) -> PhaseOf:
    """Where the windows of a rule begin, by what was stored of some of them.

    A rule's windows go on in step until it is forgotten, which is a day after the end of its last window or later.
    """
    known = sorted({start.start for start in starts})
    window_ms = rule.window_ms
    # From each use back to earlier ones, as long as the rule cannot have been forgotten in between.
    by_time: dict[int, int | None] = {}
    phase, later = None, None
    for at in sorted({*known, *(use.granted_at for use in rule.uses)}, reverse=True):
        if later is not None and later - at > DAY_MS:
            phase = None
        place = bisect_right(known, at) - 1
        if place >= 0 and at < known[place] + window_ms + DAY_MS:
            phase = known[place] % window_ms
        by_time[at], later = phase, at
    return by_time.get


def _too_many_held(uses: Sequence[Use]) -> Iterator[tuple[Use, int, int]]:
    """Leases that are too many with those before them: the lease, how many permits are held, how many may be."""
    steps: list[_Step] = []
    for use in uses:
        if not (use.has_lease and use.concurrency):
            continue
        if use.until > use.granted_at:
            steps.append(_Step(use.granted_at, _RESERVE, use.permits, use))
            steps.append(_Step(use.until, _FREE, use.permits, use))
        steps.append(_Step(use.granted_at, _CHECK, 0 if use.until > use.granted_at else use.permits, use))
    held = 0
    for _, group in _by_time(steps):
        held += sum(_signed(step) for step in group)
        checks = [step for step in group if step.kind == _CHECK]
        if checks:
            # Which of those of one millisecond came last is not known.
            count = held + min(step.permits for step in checks)
            most = max(step.use.concurrency for step in checks)
            if count > most:
                yield checks[-1].use, count, most


def _too_many(
    rule: RuleUses, kind: str, phase_of: PhaseOf | None, tally: Tally
) -> Iterator[tuple[Use, int, int]]:
    """Grants that are too many with those before them: the grant, how many permits count, how many may."""
    steps: list[_Step] = []
    for use in rule.uses:
        if phase_of is not None and phase_of(use.granted_at) is None:
            tally.unknown(PERMITS, "fixed windows whose beginning is stored no longer")
            continue
        is_held = use.is_block and use.until > use.granted_at
        if is_held:
            steps.append(_Step(use.granted_at, _RESERVE, use.permits, use))
            steps.append(_Step(use.until, _FREE, use.permits, use))
            steps.append(_Step(use.until, _CHARGE, use.used, use))
        else:
            steps.append(_Step(use.granted_at, _CHARGE, use.used, use))
        steps.append(_Step(use.granted_at, _CHECK, 0 if is_held else use.permits - use.used, use))
    counter = _COUNTERS[kind](rule)
    reserved = 0
    for at, group in _by_time(steps):
        reserved += sum(_signed(step) for step in group)
        checks = [step for step in group if step.kind == _CHECK]
        phase = phase_of(checks[0].use.granted_at) if checks and phase_of is not None else None
        counter.move(at, phase)
        counter.charge(at, sum(step.permits for step in group if step.kind == _CHARGE))
        if checks:
            count = counter.count() + reserved + min(step.permits for step in checks)
            most = max(step.use.most for step in checks)
            if count > most:
                yield checks[-1].use, count, most


def _by_time(steps: list[_Step]) -> Iterator[tuple[int, list[_Step]]]:
    steps.sort(key=lambda step: step.at)
    for at, group in groupby(steps, key=lambda step: step.at):
        yield at, list(group)


def _signed(step: _Step) -> int:
    return {_RESERVE: step.permits, _FREE: -step.permits}.get(step.kind, 0)


class _Counter:
    """What counts of the permits that were used, at one time after the other."""

    def __init__(self, rule: RuleUses) -> None:
        self._window_ms = rule.window_ms
        self._most = rule.uses[0].most

    def move(self, at: int, phase: int | None) -> None:
        """It is `at` now. `phase`: see `PhaseOf`."""
        raise NotImplementedError

    def charge(self, at: int, count: int) -> None:
        """Count permits."""
        raise NotImplementedError

    def count(self) -> int:
        """How many count now, rounded up."""
        raise NotImplementedError


class _Spans(_Counter):
    """`sliding`: those of the last `window_ms`."""

    def __init__(self, rule: RuleUses) -> None:
        super().__init__(rule)
        self._charged: deque[tuple[int, int]] = deque()
        self._sum = 0

    def move(self, at: int, phase: int | None) -> None:
        while self._charged and self._charged[0][0] <= at - self._window_ms:
            self._sum -= self._charged.popleft()[1]

    def charge(self, at: int, count: int) -> None:
        if count:
            self._charged.append((at, count))
            self._sum += count

    def count(self) -> int:
        return self._sum


class _Windows(_Spans):
    """`window`: those of the present window."""

    def move(self, at: int, phase: int | None) -> None:
        super().move(at, phase)
        if phase is not None:
            start = at - (at - phase) % self._window_ms
            while self._charged and self._charged[0][0] < start:
                self._sum -= self._charged.popleft()[1]


class _Tokens(_Counter):
    """`bucket`: those that are missing from the full bucket."""

    def __init__(self, rule: RuleUses) -> None:
        super().__init__(rule)
        self._missing = 0
        """In tokens times `window_ms`."""
        self._moved_at = 0

    def move(self, at: int, phase: int | None) -> None:
        self._missing = max(0, self._missing - (at - self._moved_at) * self._most)
        self._moved_at = at

    def charge(self, at: int, count: int) -> None:
        self._missing += count * self._window_ms

    def count(self) -> int:
        return -(-self._missing // self._window_ms)


_COUNTERS: Mapping[str, Callable[[RuleUses], _Counter]] = {
    "window": _Windows,
    "sliding": _Spans,
    "bucket": _Tokens,
}
