"""How a call of a run function is to be made, besides what it is called with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from schemas.call_commands import MAX_LEASE_MS, OnFailure

DEFAULT_LEASE_S = 30.0

_MIN_LEASE_S, _MAX_LEASE_S = 1, MAX_LEASE_MS // 1000


@dataclass(frozen=True)
class CallTerms:
    """See `RunContext.call`. Raises `TypeError` and `ValueError` for what no call can be made with."""

    on_failure: OnFailure = "keep"
    lease_s: float = DEFAULT_LEASE_S
    input_hash: str | None = None
    bucket: str | None = None
    cost: int = 1

    def __post_init__(self) -> None:
        if self.on_failure not in get_args(OnFailure):
            raise ValueError(f"on_failure is 'keep' or 'release', not {self.on_failure!r}")
        if isinstance(self.lease_s, bool) or not isinstance(self.lease_s, int | float):
            raise TypeError(f"lease_s is a number of seconds, not {self.lease_s!r}")
        if not _MIN_LEASE_S <= self.lease_s <= _MAX_LEASE_S:
            raise ValueError(f"lease_s is {_MIN_LEASE_S} to {_MAX_LEASE_S:,} seconds, not {self.lease_s}")
