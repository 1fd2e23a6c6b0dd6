"""Which partition a key belongs to: murmur2, as Kafka's Java clients compute it (DESIGN 2, wire 1 "Routing").

librdkafka's own default differs; its `partitioner=murmur2_random` is this one for every key of ours.
"""

from __future__ import annotations

from functools import lru_cache
from struct import unpack_from

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF

CACHED_KEYS = 16_384
"""Keys whose partition is remembered; at the longest keys (512 bytes) the cache takes about 12 MB."""


def murmur2(data: bytes) -> int:
    """The 32-bit murmur2 hash of `data`, unsigned, with the seed of Kafka's Java client."""
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for k in unpack_from(f"<{words}I", data):
        k = (k * _M) & _MASK
        h = ((h * _M) ^ ((k ^ (k >> 24)) * _M)) & _MASK
    tail = length & 3
    if tail:
        h = ((h ^ int.from_bytes(data[length - tail :], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


@lru_cache(maxsize=CACHED_KEYS)
def partition_for(key: bytes, partitions: int) -> int:
    """The partition (0..`partitions` - 1) that every record with this key belongs to."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
