"""What is known of a bucket's grants, as far as the topics tell: for how long, and how much of each counts at least.

Where the topics leave a choice, the one is taken that makes the least of a grant: sums over grants are never more
than what the bucket counted, so that a sum above a rule's limit is an over-grant for certain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streams.verify.cut import Cut
from streams.verify.entity import EntityView
from streams.verify.rate.rows import EndSeen, GrantSeen, KeptSeen, LeaseSeen
from streams.verify.rows import Remembered

FOREVER = 2**62
_CLOCK_SLACK_MS = 60_000


class Life(NamedTuple):
    """How a grant ended."""

    until: int
    """It lasted so long at least; `FOREVER` for a lease that has not ended. Of a grant without a lease: no matter."""
    used: int
    """So many of its permits were used at least."""
    is_known: bool = True
    """False when retention may have removed what says how it ended."""


class Ends:
    """How the grants of one bucket ended."""

    def __init__(
        self,
        view: EntityView,
        cut: Cut,
        leases: Iterable[LeaseSeen],
        kept: Iterable[KeptSeen],
        ends: Iterable[EndSeen],
    ) -> None:
        self._found = cut.ranges[view.topic, view.partition]
        places = {(change.number, change.expires_at): change for change in leases}
        self.open = {change.number: change for change in places.values() if change.is_open}
        """The leases that have not ended, by number."""
        self._kept = {change.command: change.granted_at for change in kept}
        self.said: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        """By grant: time of a command that may have ended it, and what it says was used (-1: all)."""
        commands = {command.offset: command for command in view.taken if command.offset <= view.watermark}
        for end in ends:
            command = commands.get(end.offset)
            if command is None:
                continue
            is_refused = view.state_of(command.command) == Remembered.REFUSED
            if not is_refused or command.command in view.again:
                self.said[end.grant].append((command.timestamp, end.used))

    def may_be_removed(self, granted_at: int) -> bool:
        """Whether retention may have removed what ended a grant."""
        found = self._found
        return not found.is_whole and (
            found.first_timestamp is None or granted_at <= found.first_timestamp + _CLOCK_SLACK_MS
        )

    def is_there(self, grant: int, granted_at: int, *, has_lease: bool) -> bool:
        """Whether the grant is stored still."""
        return grant in self.open if has_lease else self._kept.get(grant) == granted_at

    def of(self, grant: int, granted_at: int, expires_at: int, permits: int) -> Life:
        """How a grant ended. `expires_at`: the last that is known; 0 without a lease."""
        if self.is_there(grant, granted_at, has_lease=bool(expires_at)):
            return Life(FOREVER, permits)
        if self.may_be_removed(granted_at):
            return Life(granted_at, 0, False)
        said = self.said.get(grant, ())
        until = min((at for at, _ in said), default=FOREVER)
        used = min((used for _, used in said if used >= 0), default=permits)
        return Life(max(granted_at, min(until, expires_at)), min(used, permits))


class Use(NamedTuple):
    """What one grant counts for one rule."""

    granted_at: int
    permits: int
    until: int
    used: int
    is_block: bool
    most: int
    concurrency: int
    has_lease: bool
    offset: int


class RuleUses(NamedTuple):
    """All that is known to have been granted by one rule."""

    kind: int
    window_ms: int
    uses: list[Use]
    """By the time of the grant."""


def uses_by_rule(grants: Iterable[GrantSeen], lives: Mapping[tuple[int, int], Life]) -> dict[int, RuleUses]:
    """The uses of every rule. `lives`: by grant and the time when it was given."""
    latest: dict[tuple[int, int, int], GrantSeen] = {}
    for grant in grants:
        # A renewed lease is stored anew each time.
        latest[grant.rule, grant.grant, grant.granted_at] = grant
    found: dict[int, RuleUses] = {}
    for grant in sorted(latest.values(), key=lambda grant: (grant.granted_at, grant.offset)):
        life = lives[grant.grant, grant.granted_at]
        rule = found.setdefault(grant.rule, RuleUses(grant.kind, grant.window_ms, []))
        rule.uses.append(
            Use(
                grant.granted_at,
                grant.permits,
                life.until,
                life.used,
                bool(grant.is_block),
                grant.most,
                grant.concurrency,
                bool(grant.expires_at),
                grant.offset,
            )
        )
    return found
