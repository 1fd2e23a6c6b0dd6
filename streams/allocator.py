"""Keeps glibc's allocator from holding on to memory; elsewhere these do nothing."""

from __future__ import annotations

import ctypes
import sys

_M_ARENA_MAX = -8
_ARENAS = 2


def limit_arenas() -> None:
    """Share few heaps among all threads: the Kafka clients have dozens of them, and each would keep its own."""
    if libc := _glibc():
        libc.mallopt(_M_ARENA_MAX, _ARENAS)


def return_free_memory() -> None:
    """Give what is free back to the system, after something that took much for a short time."""
    if libc := _glibc():
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt") else None
