"""Why a command about a bucket is refused."""

from __future__ import annotations

from agents.machine import Answer, Decision, refusal
from schemas.errors import ErrorCode
from schemas.stored_rates import Limit


def rules_required() -> Decision:
    """The command names no rules, and the bucket has none."""
    return Decision().refuse(
        ErrorCode.RATE_RULES_REQUIRED,
        "no rules are stored for this bucket: send `rules`, or store them with rate.rules.put",
    )


def never_granted(limit: Limit, minimum: int) -> Decision:
    """A rule will never allow what the command wants at least."""
    what, most = "requestsPerWindow", limit.permits
    if limit.concurrency and limit.concurrency < minimum:
        what, most = "maxConcurrency", limit.concurrency
    message = f"a rule's {what} allows {most} whole permits at most, and the command wants {minimum} at least"
    return Decision().refuse(ErrorCode.RATE_NEVER_GRANTED, message, limit=most, minimum=minimum)


def too_many_rules(most: int) -> Answer:
    """The bucket counts for as many rules as it can."""
    return refusal(
        ErrorCode.RATE_TOO_MANY_RULES,
        f"{most} different rules of this bucket are in use; name the same rules in every command",
    )


def queue_full(waiting: int, most: int, *, of_run: bool) -> Decision:
    """As many commands wait as may."""
    whose = "of this run wait" if of_run else "wait"
    return Decision().refuse(
        ErrorCode.RATE_QUEUE_FULL,
        f"{waiting} commands {whose} for this bucket already; ask again later, or with blocks of permits",
        waiting=waiting,
        limit=most,
    )


def grant_not_found() -> Decision:
    """What is to be settled is not there."""
    return Decision().refuse(
        ErrorCode.RATE_GRANT_NOT_FOUND,
        "there is no such grant to be settled: it has ended, was settled before, or is too old; an acquire that "
        "got a lease is settled by its leaseId",
    )


def rules_changed(version: int) -> Decision:
    """Somebody else has changed the stored rules."""
    return Decision().refuse(
        ErrorCode.RATE_RULES_CHANGED,
        f"the stored rules have version {version}; read them and decide again",
        version=version,
    )
