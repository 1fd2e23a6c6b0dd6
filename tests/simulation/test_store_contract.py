"""What a lane relies on of its local store, in memory and in RocksDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streams.ports import LaneLostError, StateStore, StoreBrokenError, StoreFactory, StoreStamp
from streams.rocks_store import RocksStores
from tests.simulation.memory_store import MemoryStores


@pytest.fixture(params=["memory", "rocksdb"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> StoreFactory:
    """The stores of one worker."""
    if request.param == "memory":
        return MemoryStores()
    return RocksStores(tmp_path, block_cache_mb=8, write_buffer_mb=8, lanes=4)


@pytest.fixture
def store(stores: StoreFactory) -> Iterator[StateStore]:
    """An open store."""
    opened = stores.open(0)
    yield opened
    opened.close()


def stamp(position: int) -> StoreStamp:
    return StoreStamp("an-id", position, 1_700_000_000_000)


def test_a_new_store_is_empty_and_stands_for_nothing(store: StateStore) -> None:
    assert store.stamp() is None
    assert store.get(b"k") is None
    assert list(store.scan(b"")) == []


def test_a_write_takes_effect_with_its_stamp(store: StateStore) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")], stamp(5))
    store.write([(b"a", None), (b"b", b"3"), (b"gone", None), (b"empty", b"")], stamp(9))
    assert store.stamp() == stamp(9)
    assert [store.get(key) for key in (b"a", b"b", b"gone", b"empty")] == [None, b"3", None, b""]


def test_of_several_changes_of_a_key_the_last_one_counts(store: StateStore) -> None:
    store.write([(b"a", b"1"), (b"a", None), (b"a", b"2"), (b"b", b"1"), (b"b", None)], stamp(1))
    assert list(store.scan(b"a")) == [(b"a", b"2")]
    assert store.get(b"b") is None


def test_a_scan_shows_the_store_as_it_was_when_it_began(store: StateStore) -> None:
    store.write([(b"k1", b"1"), (b"k2", b"2")], stamp(1))
    scan = store.scan(b"k")
    assert next(scan) == (b"k1", b"1")
    store.write([(b"k2", None), (b"k3", b"3")], stamp(2))
    assert list(scan) == [(b"k2", b"2")]


def test_what_was_written_outlasts_closing(stores: StoreFactory) -> None:
    opened = stores.open(0)
    opened.write([(b"a", b"1")], stamp(3))
    opened.close()
    again = stores.open(0)
    assert (again.get(b"a"), again.stamp()) == (b"1", stamp(3))
    again.close()


def test_lanes_have_stores_of_their_own(stores: StoreFactory) -> None:
    first, second = stores.open(0), stores.open(1)
    first.write([(b"a", b"1")], stamp(1))
    assert second.get(b"a") is None
    first.close()
    stores.destroy(0)
    second.write([(b"b", b"2")], stamp(1))
    assert second.get(b"b") == b"2"
    second.close()


def test_a_destroyed_store_is_new_again(stores: StoreFactory) -> None:
    opened = stores.open(0)
    opened.write([(b"a", b"1")], stamp(3))
    opened.close()
    stores.destroy(0)
    stores.destroy(0)
    again = stores.open(0)
    assert (again.get(b"a"), again.stamp()) == (None, None)
    again.close()


def test_a_store_in_use_is_not_opened_and_not_broken(stores: StoreFactory) -> None:
    opened = stores.open(0)
    with pytest.raises(LaneLostError) as caught:
        stores.open(0)
    assert not isinstance(caught.value, StoreBrokenError)
    opened.close()
    stores.open(0).close()


KEYS = st.binary(min_size=1, max_size=3) | st.sampled_from(
    [b"\xff", b"\xff\xff", b"a\xff", b"a\xff\xff", b"b"]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    writes=st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=2), max_size=6), max_size=4),
    scans=st.lists(st.tuples(st.just(b"") | KEYS, st.none() | KEYS), max_size=6),
)
def test_a_scan_yields_the_keys_of_a_prefix_in_order(
    stores: StoreFactory,
    writes: list[dict[bytes, bytes | None]],
    scans: list[tuple[bytes, bytes | None]],
) -> None:
    stores.destroy(2)
    store = stores.open(2)
    expected: dict[bytes, bytes] = {}
    for number, changes in enumerate(writes):
        store.write(list(changes.items()), stamp(number))
        for key, value in changes.items():
            if value is None:
                expected.pop(key, None)
            else:
                expected[key] = value
    for prefix, start in scans:
        wanted = [
            (key, expected[key])
            for key in sorted(expected)
            if key.startswith(prefix) and (start is None or key >= start)
        ]
        # The store's own records lie below every key of a table.
        assert [pair for pair in store.scan(prefix, start) if not pair[0].startswith(b"\0stamp")] == wanted
    for key, value in expected.items():
        assert store.get(key) == value
    store.close()
