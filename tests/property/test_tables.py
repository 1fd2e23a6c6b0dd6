"""Keys and records of tables (DESIGN 4): keys sort as their parts do, old records stay readable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.tables import Table, raw_table, record_table
from schemas import stored
from schemas.stored import RunHead, RunWait, Stored, WaitGroup, replace
from schemas.stored_calls import StoredCall
from schemas.stored_launch import StoredInstance, StoredRetry, sessions_record
from schemas.stored_rates import (
    Address,
    BucketHead,
    Limit,
    RateQueue,
    RateTurn,
    RateWait,
    RateWaitPlace,
    RuleState,
    StoredGrant,
    StoredLease,
    StoredRenewal,
    StoredRules,
)
from tests.property.json_values import VALUES

TEXT_AND_NUMBER = raw_table("t", (str, int))
TEXTS = raw_table("t", (str, str))
NUMBERS = raw_table("t", (int, str))

texts = st.text(max_size=6) | st.text(alphabet="\0\1\2a\xff", max_size=5)
numbers = st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.sampled_from([255, 256, 2**63, 2**64 - 1])

keys = st.one_of(
    st.tuples(st.just(TEXT_AND_NUMBER), st.tuples(texts, numbers), st.tuples(texts, numbers)),
    st.tuples(st.just(TEXTS), st.tuples(texts, texts), st.tuples(texts, texts)),
    st.tuples(st.just(NUMBERS), st.tuples(numbers, texts), st.tuples(numbers, texts)),
)


def in_bytes(part: Any) -> Any:
    """Texts sort by their UTF-8."""
    return part.encode() if isinstance(part, str) else part


@given(keys)
@example((TEXTS, ("a", "\1"), ("a\0", "")))
def test_keys_sort_as_their_parts_do(drawn: tuple[Table[bytes], Any, Any]) -> None:
    table, left, right = drawn
    in_order = tuple(map(in_bytes, left)) < tuple(map(in_bytes, right))
    assert (table.key(*left) < table.key(*right)) is in_order
    assert (table.key(*left) == table.key(*right)) is (left == right)


@given(keys)
def test_the_parts_of_a_key_come_back(drawn: tuple[Table[bytes], Any, Any]) -> None:
    table, parts, _ = drawn
    assert table.parts(table.key(*parts)) == parts


@given(keys)
@example((TEXT_AND_NUMBER, ("a", 1), ("a\0b", 1)))
@example((TEXT_AND_NUMBER, ("a", 2**64 - 1), ("a\0", 2**64 - 1)))
@example((TEXTS, ("a", "b"), ("a\1", "b")))
def test_a_prefix_finds_the_keys_that_share_the_part_and_no_others(
    drawn: tuple[Table[bytes], Any, Any],
) -> None:
    table, left, right = drawn
    assert table.key(*right).startswith(table.key(left[0])) is (left[0] == right[0])


def test_the_bytes_of_keys_never_change() -> None:
    # They lie in changelogs and stores of earlier versions.
    assert TEXT_AND_NUMBER.key("é\0\1", 258) == b"t\0\xc3\xa9\1\1\1\2\0\0\0\0\0\0\0\1\2"
    assert TEXTS.key("a", "b") == b"t\0a\0b\0"


@given(texts, texts)
def test_tables_do_not_meet(name: str, text: str) -> None:
    other = raw_table("t" + name, (str,))
    same = other.name == TEXTS.name
    assert other.key(text).startswith(TEXTS.key()) is same


RECORDS = [kind for kind in Stored.__subclasses__() if kind.__module__.startswith("schemas.")]

LIMITS = (Limit("é", "sliding", 60_000, 2**62), Limit("c", "window", 1, 1, concurrency=3))

SAMPLES: list[Stored] = [
    RunHead(),
    RunHead(
        status="é",
        latest_seq=2**62,
        attempt=3,
        instance_id="i",
        submit_seq=1,
        waits=2,
        next_wait=9,
        ended_at=1,
        evicts_at=2,
        evicted=True,
    ),
    RunWait(kind="run.status", command_id="é", partition=0, correlation_id=b"\xff\0", trace=True),
    RunWait(
        kind="call.await", command_id="c", partition=1, correlation_id=b"c", owner="é", lease_ms=1, call=2
    ),
    WaitGroup(waits=2, claimers=1),
    StoredCall(number=1, fencing_number=2, owner="o", lease_expires_at=3, claimed_by="c"),
    StoredCall(number=1, fencing_number=2, ok=False),
    StoredRetry(updated_at=1, expires_at=2, attempts=3),
    sessions_record(1, 2, b'[{"name":"a"}]'),
    StoredInstance(instance_id="i", ttl_ms=1, expires_at=2, attempt=3),
    BucketHead(
        next_number=2**62,
        cooldown_until=1,
        rules={
            "sliding:5:é": RuleState(permits=2**62, start=1, used=2, rest=3, slots=(0, 4), reserved=5, held=6)
        },
        leases=3,
        waiting=4,
        lost_permits=5,
    ),
    StoredLease(permits=1, granted_at=2, limits=LIMITS, is_block=True, first_expires_at=3),
    StoredRenewal(expires_at=1),
    StoredGrant(number=1, permits=2, granted_at=3, limits=LIMITS),
    RateWait(
        command_id="é",
        addresses=(Address(0, b"\xff\0"),),
        asked_at=1,
        limits=LIMITS,
        requested=2,
        minimum=1,
        lease_ms=3,
    ),
    RateWaitPlace(run_id="é", number=1),
    RateQueue(waiting=1, tag=2, number=3),
    RateTurn(run_id="é"),
    StoredRules(version=2, applied_at=1, limits=LIMITS),
    stored.Remembered(number=1, at=2, ok=True, body={"a": [None, 1.0]}, by_reference={"a": "b"}),
    stored.RepeatWindow(latest=5),
    stored.Timer(payload=[2**63, "x"]),
    stored.TimerDue(due=7),
    stored.LaneProgress(watermarks={"run-commands": 3}, clock=4, transactions=5),
]


@pytest.mark.parametrize("record", SAMPLES, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_and_says_its_version(record: Stored) -> None:
    table = record_table("t", (str,), type(record))
    data = table.encode(record)
    assert data.startswith(b'{"v":1')
    assert table.decode(data) == record


def test_every_kind_of_record_is_sampled() -> None:
    assert {type(record) for record in SAMPLES} == set(RECORDS)


@given(VALUES)
def test_a_remembered_answer_keeps_any_json(value: Any) -> None:
    table = record_table("t", (str,), stored.Remembered)
    data = table.encode(stored.Remembered(number=1, at=2, ok=False, body={"v": value}))
    assert repr(table.decode(data).body) == repr({"v": value})


def test_defaults_are_left_out_and_unknown_fields_ignored() -> None:
    table = record_table("t", (str,), RunHead)
    assert table.encode(RunHead(status="running")) == b'{"v":1,"status":"running"}'
    assert table.decode(b'{"v":1,"status":"running","of_a_newer_worker":1}') == RunHead(status="running")


def test_records_do_not_change() -> None:
    head = RunHead(status="running")
    with pytest.raises(AttributeError):
        head.status = "failed"  # type: ignore[misc]
    assert replace(head, latest_seq=2) == RunHead(status="running", latest_seq=2)
    assert head == RunHead(status="running")


class CounterV1(Stored, frozen=True):
    """How it was stored once."""

    half: int = 0


class Counter(Stored, frozen=True, tag=2):
    """How it is stored now."""

    whole: int = 0


def test_older_versions_stay_readable_and_unknown_ones_are_refused() -> None:
    table = record_table("t", (str,), Counter, {CounterV1: lambda old: Counter(whole=2 * old.half)})
    assert table.decode(b'{"v":1,"half":4}') == Counter(whole=8)
    assert table.decode(table.encode(Counter(whole=3))) == Counter(whole=3)
    assert table.encode(Counter(whole=3)) == b'{"v":2,"whole":3}'
    for data in (b'{"v":3}', b'{"half":1}', b'{"v":2,"whole":"x"}'):
        with pytest.raises(msgspec.ValidationError):
            table.decode(data)
    with pytest.raises(msgspec.ValidationError):
        record_table("t", (str,), RunHead).decode(b'{"v":2}')
