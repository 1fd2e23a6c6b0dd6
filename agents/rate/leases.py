"""How long grants last: leases are renewed, released, settled or expire, and what was used is charged.

See spec coordinator 7.
"""

from __future__ import annotations

from agents.machine import AT_ONCE, Decision, FiredTimer, Request, View
from agents.rate import refusals
from agents.rate.bucket import Bucket
from agents.rate.counting import EXPIRED, LOST
from agents.rate.granting import EXPIRE, find_lease
from agents.rate.tables import GRANTS, LEASES, RENEWALS
from agents.rate.turns import serve
from schemas.rate_commands import RateRelease, RateRenew, RateSettle
from schemas.stored import replace
from schemas.stored_rates import StoredRenewal

MAX_EXPIRED = 500
"""Leases that are ended in one go; the others are ended right after."""


def release(request: Request[RateRelease], view: View) -> Decision:
    """`rate.release`: end a lease; its permits count as used. A lease that has ended is answered `false`."""
    command = request.command
    found = find_lease(view, request.key, command.lease_id)
    if found is None or found[0][2] != command.fencing_number:
        return Decision().succeed({"released": False})
    at, lease = found
    bucket = Bucket(request.key, view, request.now)
    bucket.end_lease(at, lease)
    serve(bucket)
    return bucket.finish().succeed({"released": True})


def renew(request: Request[RateRenew], view: View) -> Decision:
    """`rate.renew`: let a lease last longer, and never shorter. A lease that has ended is answered `false`."""
    command, now = request.command, request.now
    found = find_lease(view, request.key, command.lease_id)
    if found is None or found[0][2] != command.fencing_number:
        return Decision().succeed({"renewed": False})
    (key, until, number), lease = found
    decision, expires_at = Decision(), max(until, now + command.lease_ms)
    if expires_at != until:
        first = lease.first_expires_at or until
        decision.delete(LEASES, (key, until, number))
        decision.put(LEASES, (key, expires_at, number), replace(lease, first_expires_at=first))
        decision.put(RENEWALS, (key, first, number), StoredRenewal(expires_at=expires_at))
    # The timer that ends leases finds, when it is due, that this one lasts longer.
    return decision.succeed({"renewed": True, "expiresAt": expires_at, "validMs": expires_at - now})


def settle(request: Request[RateSettle], view: View) -> Decision:
    """`rate.settle`: charge what was used instead of what was granted; a lease ends with it."""
    command, key = request.command, request.key
    bucket = Bucket(key, view, request.now)
    if command.lease_id is not None:
        found = find_lease(view, key, command.lease_id)
        if found is None:
            return refusals.grant_not_found()
        at, lease = found
        granted = lease.permits
        bucket.end_lease(at, lease, command.used)
    else:
        command_id = command.acquire_command_id or ""
        kept = view.get(GRANTS, key, command_id)
        if kept is None:
            return refusals.grant_not_found()
        granted = kept.permits
        bucket.correct(kept.limits, granted, command.used, kept.granted_at)
        bucket.decision.delete(GRANTS, (key, command_id))
    serve(bucket)
    difference = command.used - granted
    return bucket.finish().succeed({"refunded": max(0, -difference), "charged": max(0, difference)})


def expire(timer: FiredTimer, view: View) -> Decision:
    """End the leases whose time is over. A block's permits count as used, and as lost: nobody said what was used."""
    bucket = Bucket(timer.key, view, timer.now)
    due = 0
    for number, (at, lease) in enumerate(bucket.leases()):
        if at[1] > timer.now or number == MAX_EXPIRED:
            due = at[1]
            break
        bucket.end_lease(at, lease)
        bucket.decision.count(EXPIRED)
        if lease.is_block:
            bucket.decision.count(LOST, lease.permits)
            head = bucket.head
            bucket.update(
                lost_leases=head.lost_leases + 1, lost_permits=min(head.lost_permits + lease.permits, 2**60)
            )
    bucket.update(expires_at=due)
    if due:
        bucket.decision.schedule(EXPIRE, due if due > timer.now else AT_ONCE)
    serve(bucket)
    return bucket.finish()
