"""The rule about the ends of leases: each one is released, settled or expires, and not before its time."""

from __future__ import annotations

from collections.abc import Iterable

from agents.rate.granting import GRANTS_KEPT_MS, MAX_KEPT_GRANTS
from schemas.topics import STATE_CHANGELOG
from streams.verify.entity import EntityView
from streams.verify.findings import Place, Rule, Tally
from streams.verify.rate.rows import TimerSeen, ToldSeen
from streams.verify.rate.uses import Ends

LEASE = Rule(
    "lease",
    "Every grant of a rate bucket is stored as it was answered, until it is released, settled or its time is over; and "
    "as long as there are leases, a timer is set for the first that expires.",
    "grants whose end retention may have removed",
)


def check_told(
    view: EntityView, told: Iterable[ToldSeen], permits: dict[tuple[int, int], int], ends: Ends, tally: Tally
) -> None:
    """Hold what was answered against what was stored. `permits`: of each stored grant, by it and its time."""
    latest = {(each.grant, each.granted_at): each for each in told}
    may_be_pruned = len(view.taken) > MAX_KEPT_GRANTS
    for at, each in latest.items():
        tally.checked(LEASE)
        place = Place(STATE_CHANGELOG.name, view.partition, each.offset)
        has_lease = bool(each.expires_at)
        stored = permits.get(at)
        if stored is not None and stored != each.permits:
            tally.violation(LEASE, place, f"says that {each.permits} permits were granted, and {stored} were")
        if ends.is_there(*at, has_lease=has_lease) or ends.said.get(each.grant):
            continue
        until = each.expires_at if has_lease else each.granted_at + GRANTS_KEPT_MS
        if view.clock >= until or (may_be_pruned and not has_lease):
            continue
        if ends.may_be_removed(each.granted_at):
            tally.unknown(LEASE, "its end may have been removed by retention")
        else:
            tally.violation(
                LEASE, place, f"{until - view.clock} ms before its time, the grant is stored no longer"
            )


def check_timer(view: EntityView, timers: Iterable[TimerSeen], ends: Ends, tally: Tally) -> None:
    """The leases that have not ended will."""
    if not ends.open:
        return
    tally.checked(LEASE)
    due = next((timer.due for timer in reversed([*timers])), -1)
    first = min(ends.open.values(), key=lambda lease: lease.expires_at)
    if due < 0 or due > first.expires_at:
        what = f"expires at {first.expires_at}, and the timer that ends it is " + (
            f"due at {due}" if due >= 0 else "not set"
        )
        tally.violation(LEASE, Place(STATE_CHANGELOG.name, view.partition, first.offset), what)
