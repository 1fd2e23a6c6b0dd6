"""murmur2 and the partition of a key, against the vectors of Kafka's own Java tests."""

import pytest

from streams.partitioner import murmur2, partition_for

JAVA_VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS)
def test_murmur2_is_what_the_java_client_computes(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_the_sign_bit_is_cleared_and_not_the_sign_taken() -> None:
    # Java masks the sign bit away; the absolute value would give 4 here, the unsigned value 5.
    assert partition_for(b"foobar", 13) == 7


def test_keys_of_any_length_up_to_the_longest_stay_in_range() -> None:
    seen = {partition_for(bytes(range(256)) * 2 + b"x" * n, 4) for n in range(64)}
    assert seen == {0, 1, 2, 3}
    assert 0 <= partition_for(b"x" * 512, 1000) < 1000
