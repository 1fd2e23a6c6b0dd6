"""The end of grants: leases are released, settled or expire, and what was used is charged (spec coordinator 7)."""

from __future__ import annotations

from agents.machine import AT_ONCE, Decision, FiredTimer, Request, View
from agents.rate import refusals
from agents.rate.bucket import Bucket
from agents.rate.counting import EXPIRED, LOST
from agents.rate.granting import EXPIRE, lease_key
from agents.rate.tables import GRANTS, LEASES
from agents.rate.turns import serve
from schemas.rate_commands import RateRelease, RateSettle

MAX_EXPIRED = 500
"""Leases that are ended in one go; the others are ended right after."""


def release(request: Request[RateRelease], view: View) -> Decision:
    """`rate.release`: end a lease; its permits count as used. A lease that has ended is answered `false`."""
    command = request.command
    at = lease_key(request.key, command.lease_id)
    lease = view.get(LEASES, *at) if at is not None else None
    if at is None or lease is None or at[2] != command.fencing_number:
        return Decision().succeed({"released": False})
    bucket = Bucket(request.key, view, request.now)
    bucket.end_lease(at, lease)
    serve(bucket)
    return bucket.finish().succeed({"released": True})


def settle(request: Request[RateSettle], view: View) -> Decision:
    """`rate.settle`: charge what was used instead of what was granted; a lease ends with it."""
    command, key = request.command, request.key
    bucket = Bucket(key, view, request.now)
    if command.lease_id is not None:
        at = lease_key(key, command.lease_id)
        lease = view.get(LEASES, *at) if at is not None else None
        if at is None or lease is None:
            return refusals.grant_not_found()
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
