"""A grant: permits are charged to every rule, and put into a lease where there is one (spec coordinator 7)."""

from __future__ import annotations

from typing import Any

from agents.machine import View
from agents.rate.bucket import Bucket, LeaseKey
from agents.rate.tables import GRANTS, LEASES, RENEWALS
from schemas.stored_rates import Limit, StoredGrant, StoredLease
from schemas.values import Value

EXPIRE = "expire"
"""The bucket's timer that ends leases: due when the next one expires."""

MAX_KEPT_GRANTS = 5000
"""Of one bucket; older ones cannot be settled any more."""
GRANTS_KEPT_MS = 3_600_000
_PRUNE_EVERY = 5000


class Wish(Value, frozen=True):
    """What somebody wants of a bucket."""

    command_id: str
    asked_at: int
    """Time of the command, in milliseconds since the epoch."""
    limits: tuple[Limit, ...]
    requested: int
    minimum: int
    """Fewer are granted as none."""
    lease_ms: int
    is_block: bool


def grant(bucket: Bucket, wish: Wish, count: int) -> dict[str, Any]:
    """Give so many permits, which must be free; returns the result."""
    limits, now = wish.limits, bucket.now
    result: dict[str, Any] = {"granted": count, "waitMs": 0, "grantedAt": now}
    if not wish.is_block and not any(limit.concurrency for limit in limits):
        bucket.charge(limits, count)
        _remember(bucket, wish, count)
        return result
    bucket.hold(limits, count, reserve=wish.is_block)
    if not wish.is_block:
        bucket.charge(limits, count)
    number, expires_at = bucket.take_number(), now + wish.lease_ms
    at = (bucket.key, expires_at, number)
    lease = StoredLease(permits=count, granted_at=now, limits=limits, is_block=wish.is_block)
    bucket.decision.put(LEASES, at, lease)
    bucket.update(leases=bucket.head.leases + 1)
    if not bucket.head.expires_at or expires_at < bucket.head.expires_at:
        bucket.decision.schedule(EXPIRE, expires_at)
        bucket.update(expires_at=expires_at)
    return {
        **result,
        "leaseId": lease_id(at),
        "fencingNumber": number,
        "expiresAt": expires_at,
        "validMs": expires_at - wish.asked_at,
    }


def nothing(bucket: Bucket, wish: Wish) -> dict[str, Any]:
    """The result when no permits were given."""
    return {"granted": 0, "waitMs": bucket.wait_ms(wish.limits, wish.minimum)}


def lease_id(at: LeaseKey) -> str:
    """The id of a lease, by where it is stored."""
    _, expires_at, number = at
    return f"{expires_at}-{number}"


def lease_key(bucket_id: str, lease_id: str) -> LeaseKey | None:
    """Where the lease of an id is stored, if there is one; None for what is no lease's id."""
    expires_at, _, number = lease_id.partition("-")
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in (expires_at, number)):
        return None
    return bucket_id, int(expires_at), int(number)


def find_lease(view: View, bucket_id: str, lease_id: str) -> tuple[LeaseKey, StoredLease] | None:
    """The lease of an id and where it is stored; None when there is none, or it has ended."""
    at = lease_key(bucket_id, lease_id)
    if at is None:
        return None
    lease = view.get(LEASES, *at)
    if lease is None:
        renewal = view.get(RENEWALS, *at)
        if renewal is None:
            return None
        at = (at[0], renewal.expires_at, at[2])
        lease = view.get(LEASES, *at)
    return (at, lease) if lease is not None else None


def prune_grants(bucket: Bucket) -> bool:
    """Delete what cannot be settled any more; returns whether any grant is left."""
    oldest, before = bucket.head.grants - MAX_KEPT_GRANTS, bucket.now - GRANTS_KEPT_MS
    left = False
    for at, kept in bucket.view.scan(GRANTS, bucket.key):
        if kept.number <= oldest or kept.granted_at <= before:
            bucket.decision.delete(GRANTS, at)
        else:
            left = True
    return left


def _remember(bucket: Bucket, wish: Wish, count: int) -> None:
    number = bucket.head.grants + 1
    bucket.update(grants=number)
    if number % _PRUNE_EVERY == 0:
        prune_grants(bucket)
    kept = StoredGrant(number=number, permits=count, granted_at=bucket.now, limits=wish.limits)
    bucket.decision.put(GRANTS, (bucket.key, wish.command_id), kept)
