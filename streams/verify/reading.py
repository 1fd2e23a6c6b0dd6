"""What all readers of topics share: where records come from, where compact records go, and what is wrong with some."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streams.partitioner import partition_for
from streams.verify.cut import Cut
from streams.verify.findings import Place, Rule, Tally
from streams.verify.log_source import LogSource, Record
from streams.verify.spill import Spill

SCHEMA = Rule(
    "schema",
    "Every record of the output topics and of the changelog is what its schema describes, under its own key.",
    "records of tables that this version does not know",
)
PARTITION = Rule(
    "partition", "Every output lies in the partition of its key, beside its lane's other outputs."
)


ReadRecords = Callable[[Sequence[Record]], None]
"""Reads some records of one partition, in their order."""

ReadChange = Callable[[bytes, bytes | None, int], None]
"""Reads one change of a table's record: key, value (None: deleted), changelog offset."""

ReadCommand = Callable[[int, int, bytes], None]
"""Reads what a command says: digest of its key, offset, value."""

ReadAnswer = Callable[[int, int, Mapping[str, Any], int], None]
"""Reads what is remembered of a command that was accepted: digests of its key and of its id, the result, changelog
offset."""


@dataclass
class Reading:
    """One verification's way from topics to compact records."""

    source: LogSource
    spill: Spill
    tally: Tally
    cut: Cut
    advance: Callable[[int], None] = lambda steps: None
    """Told how many records were read."""
    hidden_addresses: int = 0
    """Commands whose reply address cannot be read, since the native client does not read their headers."""

    def writer(self, channel: Any) -> Callable[..., None]:
        """Where compact records of a kind go."""
        return self.spill.writer(channel)

    def took(self, records: int) -> None:
        """So many records were read: what they left in memory may go to the disk."""
        self.spill.settle()
        self.advance(records)

    def malformed(self, place: Place, error: object) -> None:
        """A record is not what its schema describes."""
        self.tally.violation(SCHEMA, place, f"is not what the schema describes: {error}")

    def is_own(self, key: bytes, topic: str, partition: int, offset: int) -> bool:
        """Whether a record is in the partition of its key; one that is not is a violation."""
        owner = partition_for(key, self.cut.partitions)
        if owner == partition:
            return True
        self.tally.violation(
            PARTITION, Place(topic, partition, offset), f"belongs into partition {owner} by its key"
        )
        return False
