"""One partition of the in-memory Kafka: offsets, transactions and their markers, retention, compaction."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from schemas.envelope import Headers

_OFFSET = attrgetter("offset")


class OffsetOutOfRangeError(Exception):
    """The partition does not hold the offset."""


@dataclass(slots=True, eq=False)
class LogRecord:
    """A record or a transaction marker."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    writer: str
    """Who wrote it: a transactional id, or a plain client's name."""
    is_marker: bool = False
    is_committed: bool | None = True
    """None while its transaction is open."""
    clean_until: int | None = None
    """A deletion or a marker that compaction has seen: from this time on it may go."""

    @property
    def is_readable(self) -> bool:
        """Whether it reaches readers of committed records (once they get so far)."""
        return self.is_committed is True and not self.is_marker


class PartitionLog:
    """The log of one partition."""

    def __init__(self) -> None:
        self.records: list[LogRecord] = []
        """What the broker holds."""
        self.archive: list[LogRecord] = []
        """All that was ever written, for who judges."""
        self.start = 0
        self.end = 0
        self._open: dict[str, list[LogRecord]] = {}

    @property
    def stable(self) -> int:
        """The last stable offset: readers of committed records get up to here."""
        return min([records[0].offset for records in self._open.values()], default=self.end)

    @property
    def writers_with_open_records(self) -> list[str]:
        """Transactional ids that have records here whose transaction has not ended."""
        return list(self._open)

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        writer: str,
        *,
        in_transaction: bool = False,
    ) -> LogRecord:
        """Write one record."""
        record = LogRecord(self.end, timestamp, key, value, headers, writer)
        if in_transaction:
            record.is_committed = None
            self._open.setdefault(writer, []).append(record)
        self._add(record)
        return record

    def mark(self, timestamp: int, writer: str, *, commit: bool) -> None:
        """Write a marker: it ends all that the transactional id has open here."""
        for record in self._open.pop(writer, ()):
            record.is_committed = commit
        self._add(LogRecord(self.end, timestamp, None, None, (), writer, is_marker=True))

    def read(self, offset: int, limit: int, *, committed: bool = True) -> tuple[list[LogRecord], int]:
        """Up to `limit` records from an offset on, and where to read next.

        Readers of committed records get them up to the last stable offset, without aborted ones.
        """
        if not self.start <= offset <= self.end:
            raise OffsetOutOfRangeError(f"{offset} is not in {self.start}..{self.end}")
        end = self.stable if committed else self.end
        found: list[LogRecord] = []
        for index in range(bisect_left(self.records, offset, key=_OFFSET), len(self.records)):
            record = self.records[index]
            if record.offset >= end:
                break
            if not record.is_marker and (record.is_committed or not committed):
                if len(found) == limit:
                    return found, record.offset
                found.append(record)
        return found, max(offset, end)

    def delete_before(self, offset: int) -> None:
        """What retention does; never past the last stable offset."""
        self.start = max(self.start, min(offset, self.stable))
        self.records = self.records[bisect_left(self.records, self.start, key=_OFFSET) :]

    def compact(self, before: int, now: int, deletions_kept_ms: int) -> None:
        """Keep the latest committed record of each key below `before`; deletions go some time after they were seen."""
        end = min(before, self.stable)
        latest = {record.key: record for record in self.records if record.offset < end and record.is_readable}
        self.records = [
            record
            for record in self.records
            if record.offset >= end or self._stays(record, latest.get(record.key), now, deletions_kept_ms)
        ]

    def committed(self) -> Sequence[LogRecord]:
        """All records that were ever committed, also those that retention or compaction removed."""
        return [record for record in self.archive if record.is_readable]

    def _stays(self, record: LogRecord, latest: LogRecord | None, now: int, deletions_kept_ms: int) -> bool:
        if not record.is_marker and record is not latest:
            return False
        if record.is_marker or record.value is None:
            if record.clean_until is None:
                record.clean_until = now + deletions_kept_ms
            return now < record.clean_until
        return True

    def _add(self, record: LogRecord) -> None:
        self.records.append(record)
        self.archive.append(record)
        self.end += 1
