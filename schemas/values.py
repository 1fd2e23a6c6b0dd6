"""The base of small immutable records in memory, of which several are made for each command."""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True, gc=False):
    """Made in a quarter of the time that a NamedTuple takes.

    `gc=False`: never let a value be part of a reference cycle.
    """
