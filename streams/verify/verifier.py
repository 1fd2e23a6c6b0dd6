"""One verification from the topics to the report: read everything once, then look at each entity, then at the replies.

Nothing here knows Kafka: records come from a `LogSource`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from schemas.topics import COMMAND_TOPICS, DEAD_LETTERS, STATE_CHANGELOG
from schemas.topics import REPLIES as REPLIES_TOPIC
from streams.verify.command_log import CommandLog
from streams.verify.command_rules import FATES, CommandRules
from streams.verify.cut import Cut, RepeatLimits
from streams.verify.families import RULES, VERIFIED_FAMILIES
from streams.verify.family import VerifiedFamily
from streams.verify.findings import Place, Tally
from streams.verify.grants import check_grants
from streams.verify.log_source import LogSource
from streams.verify.origin_rules import OriginRules
from streams.verify.reading import Reading
from streams.verify.reply_log import read_replies
from streams.verify.reply_rules import ReplyRules
from streams.verify.report import Report, report_of
from streams.verify.rows import EXPECTED, GRANTED, REPLIES
from streams.verify.spill import Channel, Spill
from streams.verify.state_log import WATERMARK, StateLog

LookAt = Callable[[Any], None]
"""Shown every entity as the rules see it."""

_RECORDS_PER_BUCKET = 50_000
_MOST_BUCKETS = 4096


class Progress(Protocol):
    """Told how far a verification is."""

    def begin(self, what: str, total: int) -> None:
        """Something begins that has about so many steps."""

    def advance(self, steps: int) -> None:
        """So many steps are done."""


class NoProgress:
    """Tells nobody."""

    def begin(self, what: str, total: int) -> None:
        """See `Progress`."""

    def advance(self, steps: int) -> None:
        """See `Progress`."""


class Verifier:
    """Verifies one deployment, once."""

    def __init__(
        self,
        source: LogSource,
        repeats: RepeatLimits,
        *,
        only: bytes | None = None,
        shown_per_rule: int = 20,
        look_at: LookAt = lambda view: None,
        progress: Progress | None = None,
    ) -> None:
        """`only`: limit it to one key."""
        self._source = source
        self.tally = Tally(shown_per_rule)
        """What was found so far; what is added later is in the report too."""
        self.entities = 0
        """How many entities (runs, ...) were looked at."""
        self._cut = Cut(source.partitions, repeats, only)
        self._families = [family() for family in VERIFIED_FAMILIES]
        self._fates: Counter[str] = Counter(dict.fromkeys(FATES, 0))
        self._look_at = look_at
        self._progress: Progress = progress if progress is not None else NoProgress()
        self._states = [(STATE_CHANGELOG.name, partition) for partition in self._cut.lane_partitions]
        outputs = {DEAD_LETTERS.name, *(topic for family in self._families for topic in family.output_topics)}
        self._logs = [
            *((topic, partition) for topic in sorted(outputs) for partition in self._cut.lane_partitions),
            *((family.topic, number) for family in self._families for number in self._cut.lane_partitions),
            *((REPLIES_TOPIC.name, partition) for partition in range(source.partitions)),
        ]

    def run(self) -> Report:
        """Read and check everything."""
        buckets = 1 + self._extent([*self._states, *self._logs]) // _RECORDS_PER_BUCKET
        with closing(Spill(min(buckets, _MOST_BUCKETS))) as spill:
            reading = Reading(self._source, spill, self.tally, self._cut, self._progress.advance)
            states = self._read_states(reading)
            self._source.take_ends()
            self._read_logs(reading)
            for at in self._logs:
                self._cut.ranges[at] = self._source.range(*at)
            self._check_watermarks(states)
            command_rules = [
                CommandRules(family, number, reading, self._fates)
                for number, family in enumerate(self._families)
            ]
            origins = OriginRules(reading)
            self._check_entities(reading, command_rules, origins)
            origins.settle()
            self._check_replies(reading, command_rules)
            self._check_ahead(states, origins)
        self._note_what_is_hidden()
        return report_of(self.tally, RULES, self._cut, dict(self._fates))

    def _extent(self, places: Iterable[tuple[str, int]]) -> int:
        return sum(self._source.extent(*place) for place in places)

    def _read_states(self, reading: Reading) -> dict[int, StateLog]:
        self._progress.begin("reading the changelog", self._extent(self._states))
        states = {}
        for topic, partition in self._states:
            states[partition] = StateLog(self._families, partition, reading)
            self._cut.lanes[partition] = states[partition].read()
            self._cut.ranges[topic, partition] = self._source.range(topic, partition)
        return states

    def _read_logs(self, reading: Reading) -> None:
        self._progress.begin("reading the other topics", self._extent(self._logs))
        for partition in self._cut.lane_partitions:
            for number, family in enumerate(self._families):
                for topic in family.output_topics:
                    read = family.outputs(topic, partition, reading)
                    for records in self._source.read(topic, partition):
                        read(records)
                        reading.took(len(records))
                CommandLog(family, number, partition, reading, self._fates).read()
        for partition in range(self._source.partitions):
            read_replies(partition, reading, self._families)

    def _check_watermarks(self, states: Mapping[int, StateLog]) -> None:
        """The commands that a lane has done are in the log."""
        for family in self._families:
            for partition, state in states.items():
                watermark, end = (
                    self._cut.watermark(family.topic, partition),
                    self._cut.ranges[family.topic, partition].end,
                )
                if watermark >= end:
                    what = f"the watermark of {family.topic} is {watermark}, and its log ends at {end}"
                    self.tally.violation(WATERMARK, state.progress_place, what)

    def _check_entities(
        self, reading: Reading, command_rules: Sequence[CommandRules], origins: OriginRules
    ) -> None:
        self._progress.begin("checking", reading.spill.buckets)
        for bucket in range(reading.spill.buckets):
            for family, commands in zip(self._families, command_rules, strict=True):
                for rows in _entities(family, reading.spill, bucket):
                    view = family.view(rows, self._cut)
                    commands.check(view)
                    origins.check(view, family.made(view))
                    family.check(view, self.tally)
                    self._look_at(view)
                    self.entities += 1
            reading.took(1)

    def _check_replies(self, reading: Reading, command_rules: Sequence[CommandRules]) -> None:
        self._progress.begin("checking replies", reading.spill.buckets)
        rules = ReplyRules(command_rules, [family.topic for family in self._families], reading)
        for bucket in range(reading.spill.buckets):
            rules.check(reading.spill.rows(EXPECTED, bucket), reading.spill.rows(REPLIES, bucket))
            reading.took(1)
        rules.settle()
        for bucket in range(reading.spill.buckets):
            check_grants(reading.spill.rows(GRANTED, bucket), self.tally)

    def _check_ahead(self, states: Mapping[int, StateLog], origins: OriginRules) -> None:
        """Outputs ahead of a watermark belong to later transactions: by now the changelog has to tell of them."""
        for (topic, partition), ahead in origins.ahead.items():
            self.tally.checked(WATERMARK)
            now = states[partition].watermark_later(self._cut.lanes[partition], topic, ahead.offset)
            if now < ahead.offset:
                command = Place(topic, partition, ahead.offset)
                what = f"was made by {command}, and the changelog has not got so far"
                self.tally.violation(WATERMARK, ahead.output, what, command)

    def _note_what_is_hidden(self) -> None:
        for (topic, partition), found in self._cut.ranges.items():
            if not found.is_settled:
                self.tally.note(
                    f"{topic}[{partition}] can be read to {found.end} only: a transaction is open there"
                )
        served = {family.topic for family in self._families}
        for spec in COMMAND_TOPICS:
            if spec.name not in served and self._cut.only is None:
                records = sum(
                    self._source.extent(spec.name, number) for number in range(self._source.partitions)
                )
                if records:
                    self.tally.note(f"{spec.name} holds commands, which this version does not verify")


def _entities(
    family: VerifiedFamily[Any], spill: Spill, bucket: int
) -> Iterator[dict[Channel[Any], list[Any]]]:
    """The compact records of each entity in a bucket."""
    kinds: list[tuple[Channel[Any], defaultdict[int, list[Any]]]] = []
    for channel in family.channels:
        by_entity: defaultdict[int, list[Any]] = defaultdict(list)
        for row in spill.rows(channel, bucket):
            by_entity[row[0]].append(row)
        kinds.append((channel, by_entity))
    for entity in set().union(*(by_entity for _, by_entity in kinds)):
        yield {channel: by_entity.pop(entity) for channel, by_entity in kinds if entity in by_entity}
