"""The rate machine's part of a lane's state."""

from __future__ import annotations

from agents.tables import record_table
from schemas.stored_rates import (
    BucketHead,
    RateQueue,
    RateTurn,
    RateWait,
    RateWaitPlace,
    StoredGrant,
    StoredLease,
    StoredRenewal,
    StoredRules,
)

BUCKETS = record_table("rate.bucket", (str,), BucketHead)
"""Key (bucket id)."""

LEASES = record_table("rate.lease", (str, int, int), StoredLease)
"""Key (bucket id, when it expires, number): in the order in which they expire."""

RENEWALS = record_table("rate.renewal", (str, int, int), StoredRenewal)
"""Key (bucket id, when it was to expire at first, number): of the leases that were renewed."""

GRANTS = record_table("rate.grant", (str, str), StoredGrant)
"""Key (bucket id, command id)."""

WAITS = record_table("rate.wait", (str, str, int), RateWait)
"""Key (bucket id, run id or empty, number): a run's waiting commands in the order in which they came."""

WAIT_PLACES = record_table("rate.wait_place", (str, str), RateWaitPlace)
"""Key (bucket id, command id)."""

QUEUES = record_table("rate.queue", (str, str), RateQueue)
"""Key (bucket id, run id or empty)."""

TURNS = record_table("rate.turn", (str, int, int), RateTurn)
"""Key (bucket id, tag, number): one turn of each run that waits."""

STORED_RULES = record_table("rate.rules", (str,), StoredRules)
"""Key (bucket id)."""
