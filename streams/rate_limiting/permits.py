"""What a call gets from a limiter, and what is raised when too many want it."""

from __future__ import annotations

from dataclasses import dataclass

from streams.user_errors import UserError


class RateLimited(UserError):
    """More calls wait for permits in this process than may."""


@dataclass
class Permit:
    """The right to make a call."""

    cost: int
    """What was taken for it."""
    used: int
    """What the call has used in the end. Set it when that is not `cost`: the difference is given back or charged."""
    is_lost: bool = False
    """Its lease has ended before the call has, so that others may make calls in its place."""
