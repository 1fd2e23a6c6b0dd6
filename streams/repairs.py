"""Repairs of half-marked transactions, and how one that was interrupted is recognised and made good (decision 10).

What hangs in a partition is ended by an empty record and its marker. Until that marker is written, a crash aborts the
empty record, and with it what hung, though it may be committed elsewhere. So the empty record says where the hanging
transaction begins and how it should have ended. It stays the partition's last record until a lane has opened, which
finds it there, aborted, and writes the records before it once more.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Self

from schemas.topics import DEAD_LETTERS, STATE_CHANGELOG
from streams.ports import HEAL_KEY, LaneCluster, LoggedRecord, OutRecord, Place
from streams.transaction_names import TRANSACTION, names_of

_log = logging.getLogger(__name__)

REPAIR = "runlane.repair"
"""Header of an empty record that ends a hanging transaction, and of records that are written again. Its value: the
offset at which the transaction begins, whether it is `committed` or `aborted`, and its names, with blanks between."""

_COMMITTED, _ABORTED = "committed", "aborted"


class Repair(NamedTuple):
    """A transaction that hung in a partition, and how it has to end there."""

    begin: Place
    commit: bool
    names: frozenset[str]

    @classmethod
    def of(cls, record: LoggedRecord) -> Self | None:
        """The repair that a record is part of."""
        for name, value in reversed(record.headers):
            if name == REPAIR and value is not None:
                begin, end, *names = value.decode().split(" ")
                place = record.place._replace(offset=int(begin))
                return cls(place, end == _COMMITTED, frozenset(names))
            if record.place.topic == DEAD_LETTERS.name:
                # Before ours there are headers that a client sent along.
                return None
        return None

    def header(self) -> tuple[str, bytes]:
        """As a header of a record."""
        end = _COMMITTED if self.commit else _ABORTED
        return REPAIR, " ".join([str(self.begin.offset), end, *sorted(self.names)]).encode()


def ending(hanging: LoggedRecord, *, commit: bool) -> OutRecord:
    """The empty record that ends the transaction whose first record in a partition hangs there."""
    # What was written again and hangs stands for what it repeats: aborted, that has to be written yet again.
    names = names_of(hanging)
    repair = Repair.of(hanging) or Repair(hanging.place, commit, names)
    headers = [repair.header()]
    if names:
        # Where others write too it may hang itself, and has to be found.
        headers.append((TRANSACTION, " ".join(sorted(names)).encode()))
    return OutRecord(hanging.place.topic, hanging.place.partition, HEAL_KEY, None, headers)


class InterruptedRepairs:
    """What a lane's earlier openings tried to repair, as the ends of its partitions tell; also what they completed."""

    def __init__(self, cluster: LaneCluster) -> None:
        """Look at the ends of all partitions that only the lane writes."""
        self._cluster = cluster
        self._found = [self._scan(repair) for repair in map(Repair.of, cluster.tails()) if repair]
        repairs = (Repair.of(record) for records in self._found for record in records)
        self.names = frozenset(
            name for repair in repairs if repair and repair.commit for name in repair.names
        )
        """The names of the transactions that are to be committed."""

    def lost(self) -> list[OutRecord]:
        """The records that are to be committed and were aborted, in order; asked when nothing hangs any more."""
        return [output for records in self._found for output in self._lost(records)]

    def _scan(self, repair: Repair) -> Sequence[LoggedRecord]:
        """The records from the first one on that a repair at a partition's end is about, committed or not."""
        begin = repair.begin
        while True:
            records = list(self._cluster.records(begin, committed=False))
            repairs = (Repair.of(record) for record in records)
            first = min((found.begin for found in repairs if found), default=begin)
            if first >= begin:
                return records
            begin = first

    def _lost(self, records: Sequence[LoggedRecord]) -> Iterator[OutRecord]:
        committed = {record.place for record in self._cluster.records(records[0].place, committed=True)}
        wanted: dict[Repair, bool] = {}
        for record in records:
            repair = Repair.of(record)
            if repair is not None and repair.commit:
                wanted[repair] = wanted.get(repair, False) or record.place in committed
        for repair in sorted(repair for repair, is_done in wanted.items() if not is_done):
            behind = [record for record in records if record.place >= repair.begin]
            if behind[0].place != repair.begin:
                _log.error(
                    "%s was aborted by an interrupted repair, and is no longer in the log", repair.begin
                )
                continue
            later = {record.key for record in behind if record.place in committed}
            for record in _transaction(behind):
                if record.place in committed:
                    continue
                # The state of a later transaction holds: a restore reads what is written now behind it.
                if record.place.topic != STATE_CHANGELOG.name or record.key not in later:
                    yield _again(record, repair)


def _transaction(records: Iterable[LoggedRecord]) -> Iterator[LoggedRecord]:
    """The records of the transaction that the first of them belongs to: a lane writes one after another."""
    names: frozenset[str] | None = None
    for record in records:
        if names is None:
            names = names_of(record)
        elif Repair.of(record) or (_begins(record) and names_of(record) != names):
            return
        yield record


def _begins(record: LoggedRecord) -> bool:
    return any(name == TRANSACTION for name, _ in record.headers)


def _again(record: LoggedRecord, repair: Repair) -> OutRecord:
    headers = [header for header in record.headers if header[0] != TRANSACTION]
    return OutRecord(
        record.place.topic, record.place.partition, record.key, record.value, [*headers, repair.header()]
    )
