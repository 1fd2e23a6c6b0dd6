"""As `test_wrong_histories`: permits that no rule allows, and leases that end when they must not, or never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agents.rate import tables
from agents.rate.granting import EXPIRE
from schemas.rate_commands import DEFAULT_LEASE_MS
from schemas.stored import replace as changed
from schemas.stored_rates import Limit, StoredGrant, StoredLease
from streams.lane_tables import ANSWERS, TIMERS_DUE
from streams.partitioner import partition_for
from streams.verify.findings import Place
from tests.verification.breaking import Break, Breaks, last, name_of, report_on, require_found, state_of
from tests.verification.made_deployment import MINUTE, PARTITIONS, SECOND, START, Deployment
from tests.verification.made_topics import CHANGELOG, At, Made, Topics

RATE_BREAKS = Breaks()
breaks = RATE_BREAKS.of

MOST = 10
KINDS = ("window", "sliding", "bucket")


def limit(kind: str, concurrency: int = 0) -> Limit:
    """The rule of the bucket that is named like its kind."""
    return Limit("r", kind, MINUTE, MOST, concurrency)


@pytest.fixture(scope="module")
def right() -> Deployment:
    """A bucket for each kind of rule, and one with leases: all are used up, some is given back, some runs out."""
    made = Deployment()

    def ask(type_: str, bucket: str, command_id: str, **fields: Any) -> None:
        kind = bucket if bucket in KINDS else "window"
        rule = {"ruleId": "r", "kind": kind, "windowMs": MINUTE, "requestsPerWindow": MOST}
        if bucket == "leases":
            rule["maxConcurrency"] = 4
        made.send(type_, bucket, command_id=f"{bucket}-{command_id}", asks=True, rules=[rule], **fields)

    for moment in range(3):
        for bucket in KINDS:
            ask("rate.acquire", bucket, f"{moment}-1", requested=6)
            ask("rate.lease", bucket, f"{moment}-2", requested=20, leaseMs=2 * SECOND)
            ask("rate.acquire", bucket, f"{moment}-3", requested=2)
        made.settle()
        for bucket in KINDS:
            settled = f"{bucket}-{moment}-1"
            made.send("rate.settle", bucket, asks=True, acquireCommandId=settled, used=5)
        made.settle()
        for bucket in KINDS:
            ask("rate.acquire", bucket, f"{moment}-4", requested=2)
        made.pass_time(5 * SECOND)
        # The blocks have run out, and count as used.
        for bucket in KINDS:
            ask("rate.acquire", bucket, f"{moment}-5", requested=2)
        made.settle()
        made.pass_time(2 * MINUTE)
    ask("rate.acquire", "leases", "1", requested=4, leaseMs=SECOND)
    made.settle()
    made.pass_time(2 * SECOND)
    ask("rate.acquire", "leases", "2", requested=3)
    ask("rate.acquire", "leases", "3", requested=1)
    made.settle()
    return made


def test_the_history_is_right_before_it_is_broken(right: Deployment) -> None:
    report = report_on(right, right.topics)
    assert not report.violations
    checked = {rule.name: count.checked for rule, count in report.rules.items()}
    # Per moment each bucket has the grants 1, 2 and 4; three leases; and a timer.
    assert checked["permits"] > 3 * 3 * 3 + 3
    assert checked["lease"] == 3 * 3 * 3 + 3 + 1
    assert sum(count.not_checkable for count in report.rules.values()) == 0


@pytest.mark.parametrize(("rule", "break_it"), RATE_BREAKS, ids=name_of)
def test_what_is_broken_is_found_by_its_rule_alone(right: Deployment, rule: str, break_it: Break) -> None:
    require_found(right, rule, break_it)


def of_bucket(bucket: str) -> At:
    """Where a bucket's state is."""
    return CHANGELOG, partition_for(bucket.encode(), PARTITIONS)


def put(topics: Topics, bucket: str, key: bytes, value: bytes | None) -> Place:
    """Append a record to the changelog."""
    record = Made(0, START, key, value)
    return topics.append(of_bucket(bucket), record)


def granted_at(topics: Topics, bucket: str, command: str) -> int:
    """When a command got its permits."""
    key = tables.GRANTS.key(bucket, f"{bucket}-{command}")
    _, record = topics.find(CHANGELOG, lambda record: record.own_key == key and record.own_value is not None)
    return tables.GRANTS.decode(record.own_value or b"").granted_at


def forge(topics: Topics, bucket: str, kind: str, at: int, permits: int) -> Place:
    """A grant without a lease that nobody asked for."""
    grant = StoredGrant(number=99, permits=permits, granted_at=at, limits=(limit(kind),))
    return put(topics, bucket, tables.GRANTS.key(bucket, "forged"), tables.GRANTS.encode(grant))


def forge_lease(topics: Topics, bucket: str, lease: StoredLease, lasts_ms: int) -> Place:
    """A lease that nobody asked for, and that has ended."""
    key = tables.LEASES.key(bucket, lease.granted_at + lasts_ms, 5)
    place = put(topics, bucket, key, tables.LEASES.encode(lease))
    put(topics, bucket, key, None)
    return place


@breaks("permits")
def a_window_grants_one_permit_too_many(topics: Topics) -> Place:
    return forge(topics, "window", "window", granted_at(topics, "window", "1-4"), 1)


@breaks("permits")
def a_window_grants_too_many_at_its_end(topics: Topics) -> Place:
    # Its first use was at the beginning.
    return forge(topics, "window", "window", START + MINUTE - 1, 1)


@breaks("permits")
def a_sliding_window_grants_one_permit_too_many(topics: Topics) -> Place:
    at = granted_at(topics, "sliding", "2-4")
    return forge(topics, "sliding", "sliding", at + MINUTE - 1, 6)


@breaks("permits")
def a_token_bucket_grants_one_permit_too_many(topics: Topics) -> Place:
    at = granted_at(topics, "bucket", "1-4")
    # One permit comes back in 6 s, and the acquire after 5 s got none.
    return forge(topics, "bucket", "bucket", at + 5 * SECOND, 1)


@breaks("permits")
def a_block_is_granted_beside_what_was_used(topics: Topics) -> Place:
    at = granted_at(topics, "sliding", "0-4") + SECOND
    block = StoredLease(permits=1, granted_at=at, limits=(limit("sliding"),), is_block=True)
    return forge_lease(topics, "sliding", block, SECOND)


@breaks("permits")
def permits_are_granted_while_a_block_has_them(topics: Topics) -> Place:
    return forge(topics, "window", "window", granted_at(topics, "window", "2-4") + SECOND, 1)


@breaks("permits")
def a_lost_block_counts_for_less_than_it_had(topics: Topics) -> Place:
    """After it ran out, nothing was left."""
    return forge(topics, "window", "window", granted_at(topics, "window", "0-4") + 10 * SECOND, 1)


@breaks("permits")
def more_are_in_leases_than_may_be(topics: Topics) -> Place:
    _, expires_at, _ = tables.LEASES.parts(lease_of_the_second(topics))
    at = expires_at - DEFAULT_LEASE_MS
    lease = StoredLease(permits=1, granted_at=at, limits=(limit("window", 4),))
    return forge_lease(topics, "leases", lease, SECOND)


@breaks("permits")
def a_window_begins_anew_before_its_time(topics: Topics) -> Place:
    at, record = last(topics, CHANGELOG, state_of(tables.BUCKETS.key("window")))
    head = tables.BUCKETS.decode(record.own_value or b"")
    name = f"window:{MINUTE}:r"
    state = head.rules[name]
    rules = {**head.rules, name: changed(state, start=state.start + 1)}
    moved = tables.BUCKETS.encode(changed(head, rules=rules))
    return topics.append(at, record, own_value=moved)


@breaks("lease")
def fewer_permits_are_stored_than_were_answered(topics: Topics) -> Place:
    key = tables.GRANTS.key("window", "window-2-4")
    at, record = last(topics, CHANGELOG, state_of(key))
    grant = tables.GRANTS.decode(record.own_value or b"")
    topics.put(at, replace(record, own_value=tables.GRANTS.encode(changed(grant, permits=0))))
    return answer_to(topics, "window", "window-2-4")


def answer_to(topics: Topics, bucket: str, command_id: str) -> Place:
    """Where the answer to a command is remembered."""
    at, record = last(topics, CHANGELOG, state_of(ANSWERS.key("rate", bucket, command_id)))
    return Place(*at, record.at)


@breaks("lease")
def a_lease_is_forgotten_before_its_time(topics: Topics) -> Place:
    _end(topics, lease_of_the_second(topics))
    return answer_to(topics, "leases", "leases-2")


def lease_of_the_second(topics: Topics) -> bytes:
    """The key of the lease that `leases-2` got."""
    prefix = tables.LEASES.key("leases")
    found = [
        record
        for record in topics.logs[of_bucket("leases")]
        if (record.own_key or b"").startswith(prefix)
        and record.own_value is not None
        and tables.LEASES.decode(record.own_value).permits == 3
    ]
    return found[-1].own_key or b""


def _end(topics: Topics, key: bytes) -> None:
    """Delete a lease, and count it no more."""
    put(topics, "leases", key, None)
    at, record = last(topics, CHANGELOG, state_of(tables.BUCKETS.key("leases")))
    head = tables.BUCKETS.decode(record.own_value or b"")
    topics.append(at, record, own_value=tables.BUCKETS.encode(changed(head, leases=head.leases - 1)))


@breaks("lease")
def nothing_ends_the_leases(topics: Topics) -> Place:
    put(topics, "leases", TIMERS_DUE.key("rate", "leases", EXPIRE), None)
    key = lease_of_the_second(topics)
    at, record = last(topics, CHANGELOG, state_of(key))
    return Place(*at, record.at)
