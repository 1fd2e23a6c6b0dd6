"""How rate buckets are verified: every command has its answer, and a bucket counts right what it has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from agents.families import FAMILIES
from agents.rate import tables
from agents.tables import Table
from schemas.topics import RATE_COMMANDS, STATE_CHANGELOG
from streams.verify.cut import Cut
from streams.verify.digests import NOTHING, digest
from streams.verify.entity import EntityView
from streams.verify.family import Made, Reply, Rows, VerifiedFamily
from streams.verify.findings import Place, Rule, Tally
from streams.verify.rate.ends import LEASE, check_timer, check_told
from streams.verify.rate.permits import PERMITS, check_permits, check_starts
from streams.verify.rate.readers import answer_reader, end_readers, table_readers
from streams.verify.rate.rows import (
    ENDS,
    GRANTS,
    HEADS,
    KEPT,
    LEASES,
    STARTS,
    TIMERS,
    TOLD,
    WAITS,
    GrantSeen,
    HeadSeen,
    StartSeen,
)
from streams.verify.rate.uses import Ends, uses_by_rule
from streams.verify.reading import ReadAnswer, ReadChange, ReadCommand, Reading, ReadRecords
from streams.verify.rows import CommandSeen, Says

BUCKET = Rule("bucket", "A rate bucket counts as many leases and waiting commands as are stored for it.")

_FAMILY = next(family for family in FAMILIES if family.name == "rate")


class BucketView(EntityView):
    """A bucket, as the rules look at it."""

    def __init__(self, rows: Rows, family: RateFamily, cut: Cut) -> None:
        heads: list[HeadSeen] = rows.get(HEADS, [])
        commands: list[CommandSeen] = rows.get(family.commands, [])
        self.head = heads[-1] if heads else None
        self.rows = rows
        waits = {change.wait: change for change in rows.get(WAITS, ())}
        waiting = [wait for wait in waits.values() if wait.command != NOTHING]
        self.waiting = {wait.command for wait in waiting}
        """The ids of the commands that are stored as waiting."""
        partition = self.head.partition if self.head is not None else commands[0].owner if commands else 0
        answers = rows.get(family.answers, [])
        # To wait is what such a command has done so far.
        super().__init__(RATE_COMMANDS.name, commands, answers, waiting, family.questions, partition, cut)
        self.ends = Ends(self, cut, rows.get(LEASES, ()), rows.get(KEPT, ()), rows.get(ENDS, ()))
        """How its grants ended."""


class RateFamily(VerifiedFamily[BucketView]):
    """The family of `rate-commands`."""

    state_tables = tuple(table for table in vars(tables).values() if isinstance(table, Table))
    rules = (BUCKET, PERMITS, LEASE)

    def __init__(self) -> None:
        super().__init__(_FAMILY, HEADS, LEASES, KEPT, WAITS, GRANTS, STARTS, TOLD, ENDS, TIMERS)

    def outputs(self, topic: str, partition: int, reading: Reading) -> ReadRecords:
        """Buckets have no outputs but replies."""
        raise ValueError(f"{topic} is no output of rate buckets")

    def tables(self, partition: int, reading: Reading) -> Mapping[str, ReadChange]:
        """See `VerifiedFamily`."""
        return table_readers(partition, reading)

    def commands_read(self, reading: Reading) -> Mapping[str, ReadCommand]:
        """See `VerifiedFamily`."""
        return end_readers(reading)

    def answers_read(self, reading: Reading) -> ReadAnswer:
        """See `VerifiedFamily`."""
        return answer_reader(reading)

    def view(self, rows: Rows, cut: Cut) -> BucketView:
        """See `VerifiedFamily`."""
        return BucketView(rows, self, cut)

    def made(self, view: BucketView) -> Mapping[str, Sequence[Made]]:
        """Nothing."""
        return {}

    def check(self, view: BucketView, tally: Tally) -> None:
        """See `VerifiedFamily`."""
        self._check_counts(view, tally)
        self._check_grants(view, tally)

    def _check_counts(self, view: BucketView, tally: Tally) -> None:
        tally.checked(BUCKET)
        head = view.head
        counted = (head.leases, head.waiting) if head is not None else (0, 0)
        stored = (len(view.ends.open), len(view.waiting))
        if counted != stored:
            place = Place(STATE_CHANGELOG.name, view.partition, head.offset if head is not None else 0)
            tally.violation(
                BUCKET,
                place,
                f"counts {counted[0]} leases and {counted[1]} waiting commands, and has {stored[0]} and {stored[1]}",
            )

    def _check_grants(self, view: BucketView, tally: Tally) -> None:
        rows, ends = view.rows, view.ends
        grants: list[GrantSeen] = rows.get(GRANTS, [])
        lives = {}
        for grant in grants:
            life = ends.of(grant.grant, grant.granted_at, grant.expires_at, grant.permits)
            lives[grant.grant, grant.granted_at] = life
        unknown = sum(not life.is_known for life in lives.values())
        tally.unknown(PERMITS, "grants whose settlement retention may have removed", unknown)
        starts: defaultdict[int, list[StartSeen]] = defaultdict(list)
        for start in rows.get(STARTS, ()):
            starts[start.rule].append(start)
        for found in starts.values():
            check_starts(found, view.partition, tally)
        for name, rule in uses_by_rule(grants, lives).items():
            check_permits(rule, starts[name], view.partition, tally)
        stored = {(grant.grant, grant.granted_at): grant.permits for grant in grants}
        check_told(view, rows.get(TOLD, ()), stored, ends, tally)
        check_timer(view, rows.get(TIMERS, ()), ends, tally)

    def reply(self, view: BucketView, command: CommandSeen) -> Reply:
        """See `VerifiedFamily`."""
        either = Says.YES | Says.NO
        says = either | Says.LATER if command.command in view.waiting else either
        return Reply(says, grants=digest(f"bucket {command.key}"))
