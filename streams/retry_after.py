"""What a provider asks for when it says `Retry-After` (RFC 9110, section 10.2.3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime

BUSY = frozenset({429, 503})
"""The statuses whose `Retry-After` is about the rate of requests."""


def retry_after_s(
    status: int, headers: Mapping[str, str], now: Callable[[], float] = time.time
) -> float | None:
    """For how many seconds a response asks to stay away; None when it does not, or not in a form that is known.

    `headers` may have names in any case. A date counts from `now()`, in seconds since the epoch.
    """
    if status not in BUSY:
        return None
    value = next((value for name, value in headers.items() if name.lower() == "retry-after"), "").strip()
    if value.isascii() and value.isdigit():
        return float(int(value[:12]))
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now())
    except (ValueError, TypeError, OverflowError):
        return None
