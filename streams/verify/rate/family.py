"""How rate buckets are verified: every command has its answer, and a bucket counts right what it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agents.families import FAMILIES
from agents.rate import tables
from agents.tables import Table
from schemas.topics import RATE_COMMANDS, STATE_CHANGELOG
from streams.verify.cut import Cut
from streams.verify.digests import NOTHING, digest
from streams.verify.entity import EntityView
from streams.verify.family import Made, Reply, Rows, VerifiedFamily
from streams.verify.findings import Place, Rule, Tally
from streams.verify.rate.rows import HEADS, LEASES, WAITS, HeadSeen
from streams.verify.reading import ReadChange, Reading, ReadRecords
from streams.verify.rows import CommandSeen, Says

BUCKET = Rule("bucket", "A rate bucket counts as many leases and waiting commands as are stored for it.")

_FAMILY = next(family for family in FAMILIES if family.name == "rate")


class BucketView(EntityView):
    """A bucket, as the rules look at it."""

    def __init__(self, rows: Rows, family: RateFamily, cut: Cut) -> None:
        heads: list[HeadSeen] = rows.get(HEADS, [])
        commands: list[CommandSeen] = rows.get(family.commands, [])
        self.head = heads[-1] if heads else None
        leases = {change.lease: change.is_open for change in rows.get(LEASES, ())}
        self.leases = sum(leases.values())
        """How many are stored."""
        waits = {change.wait: change for change in rows.get(WAITS, ())}
        waiting = [wait for wait in waits.values() if wait.command != NOTHING]
        self.waiting = {wait.command for wait in waiting}
        """The ids of the commands that are stored as waiting."""
        partition = self.head.partition if self.head is not None else commands[0].owner if commands else 0
        answers = rows.get(family.answers, [])
        # To wait is what such a command has done so far.
        super().__init__(RATE_COMMANDS.name, commands, answers, waiting, family.questions, partition, cut)


class RateFamily(VerifiedFamily[BucketView]):
    """The family of `rate-commands`."""

    state_tables = tuple(table for table in vars(tables).values() if isinstance(table, Table))
    rules = (BUCKET,)

    def __init__(self) -> None:
        super().__init__(_FAMILY, HEADS, LEASES, WAITS)

    def outputs(self, topic: str, partition: int, reading: Reading) -> ReadRecords:
        """Buckets have no outputs but replies."""
        raise ValueError(f"{topic} is no output of rate buckets")

    def tables(self, partition: int, reading: Reading) -> Mapping[str, ReadChange]:
        """See `VerifiedFamily`."""
        only = reading.cut.only
        write_head, write_lease, write_wait = (reading.writer(rows) for rows in (HEADS, LEASES, WAITS))

        def read_head(at: bytes, value: bytes | None, offset: int) -> None:
            bucket = _bucket(tables.BUCKETS, at)
            head = None if value is None else tables.BUCKETS.decode(value)
            if only in (None, bucket):
                counts = (0, 0) if head is None else (head.leases, head.waiting)
                write_head(digest(bucket), offset, *counts, partition)

        def read_lease(at: bytes, value: bytes | None, _: int) -> None:
            bucket = _bucket(tables.LEASES, at)
            if value is not None:
                tables.LEASES.decode(value)
            if only in (None, bucket):
                write_lease(digest(bucket), digest(at), value is not None)

        def read_wait(at: bytes, value: bytes | None, _: int) -> None:
            bucket = _bucket(tables.WAITS, at)
            command = NOTHING if value is None else digest(tables.WAITS.decode(value).command_id)
            if only in (None, bucket):
                write_wait(digest(bucket), digest(at), command)

        return {tables.BUCKETS.name: read_head, tables.LEASES.name: read_lease, tables.WAITS.name: read_wait}

    def view(self, rows: Rows, cut: Cut) -> BucketView:
        """See `VerifiedFamily`."""
        return BucketView(rows, self, cut)

    def made(self, view: BucketView) -> Mapping[str, Sequence[Made]]:
        """Nothing."""
        return {}

    def check(self, view: BucketView, tally: Tally) -> None:
        """See `VerifiedFamily`."""
        tally.checked(BUCKET)
        head = view.head
        counted = (head.leases, head.waiting) if head is not None else (0, 0)
        stored = (view.leases, len(view.waiting))
        if counted != stored:
            place = Place(STATE_CHANGELOG.name, view.partition, head.offset if head is not None else 0)
            tally.violation(
                BUCKET,
                place,
                f"counts {counted[0]} leases and {counted[1]} waiting commands, and has {stored[0]} and {stored[1]}",
            )

    def reply(self, view: BucketView, command: CommandSeen) -> Reply:
        """See `VerifiedFamily`."""
        either = Says.YES | Says.NO
        return Reply(either | Says.LATER if command.command in view.waiting else either)


def _bucket(table: Table[Any], at: bytes) -> bytes:
    """The bucket id in a key."""
    return str(table.parts(at)[0]).encode()
