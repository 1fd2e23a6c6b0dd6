"""The rule about fencing numbers, of any family, as far as those who got them can tell: the replies."""

from __future__ import annotations

from collections.abc import Iterable

from schemas.topics import REPLIES as REPLIES_TOPIC
from streams.verify.findings import Place, Rule, Tally
from streams.verify.rows import Granted

FENCING = Rule(
    "fencing",
    "The fencing numbers of a call, or of a bucket, only grow, no two commands get the same one, the newest one of "
    "a call is stored, and a result is published once: under the newest number, with none after it.",
    "commands whose answer is remembered no longer",
)


def check_grants(granted: Iterable[Granted], tally: Tally) -> None:
    """Hold the fencing numbers of one bucket of replies against the rule: all for the same thing are in it."""
    holders: dict[tuple[int, int], Granted] = {}
    for grant in sorted(granted, key=lambda grant: (grant.partition, grant.offset)):
        tally.checked(FENCING)
        holder = holders.setdefault((grant.thing, grant.number), grant)
        if holder.command != grant.command:
            tally.violation(
                FENCING,
                _place(grant),
                f"gives fencing number {grant.number}, which another command got too",
                _place(holder),
            )


def _place(grant: Granted) -> Place:
    return Place(REPLIES_TOPIC.name, grant.partition, grant.offset)
