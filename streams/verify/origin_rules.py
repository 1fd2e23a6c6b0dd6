"""The rule that every output has a command in the log, of any family; also finds outputs ahead of the watermark."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streams.verify.digests import TIMER
from streams.verify.entity import EntityView
from streams.verify.family import Made
from streams.verify.findings import Place, Rule
from streams.verify.reading import Reading

ORIGIN = Rule(
    "origin",
    "Every event, terminal state and dispatch was made by a timer, or by a command in the log without a dead letter.",
    "outputs of commands that retention has removed",
)

_SLACK_MS = 60_000
_NO_COMMAND = "no command in the log has its `commandId`"


@dataclass
class Ahead:
    """The last command behind a watermark that has made an output which is visible already."""

    offset: int
    output: Place


@dataclass
class _Doubts:
    """Outputs of one partition without a command, of a command log without its beginning."""

    commands: tuple[str, int]
    first_known: int = 2**63
    """Offset of the first output whose command is there and was there before it."""
    most_lag_ms: int = 0
    """The longest time between a command and its output."""
    offsets: array[int] = field(default_factory=lambda: array("q"))
    timestamps: array[int] = field(default_factory=lambda: array("q"))


class OriginRules:
    """Follows the outputs of entities back to their commands."""

    def __init__(self, reading: Reading) -> None:
        self._cut = reading.cut
        self._tally = reading.tally
        self._doubts: dict[tuple[str, int], _Doubts] = {}
        self.ahead: dict[tuple[str, int], Ahead] = {}
        """By command topic and partition."""

    def check(self, view: EntityView, made: Mapping[str, Sequence[Made]]) -> None:
        """Hold the outputs of one entity against the rule."""
        first, taken, watermark = view.first, view.taken, view.watermark
        is_whole = self._cut.is_whole(view.topic, view.partition)
        for topic, outputs in made.items():
            self._tally.checked(ORIGIN, len(outputs))
            for output in outputs:
                position = first.get(output.command)
                if position is None:
                    if output.command != TIMER:
                        self._alone(view, topic, output, is_whole)
                    continue
                command = taken[position]
                if command.offset > watermark:
                    self._is_ahead(view, command.offset, Place(topic, view.partition, output.offset))
                elif not is_whole:
                    self._known(view, topic, output, output.timestamp - command.timestamp)

    def settle(self) -> None:
        """Once all entities were seen: decide on outputs whose commands retention may have removed.

        A lane processes its commands in the order of the log. So what was made by commands before the log's beginning
        lies before what was made by those that are there, and no later than the lane lagged behind.
        """
        for (topic, partition), doubts in self._doubts.items():
            found = self._cut.ranges[doubts.commands]
            since = (found.first_timestamp or 2**62) + doubts.most_lag_ms + _SLACK_MS
            for offset, timestamp in sorted(zip(doubts.offsets, doubts.timestamps, strict=True)):
                if offset > doubts.first_known and timestamp > since:
                    self._tally.violation(ORIGIN, Place(topic, partition, offset), _NO_COMMAND)
                else:
                    self._tally.unknown(ORIGIN, "retention has removed the beginning of the log")

    def _alone(self, view: EntityView, topic: str, output: Any, is_whole: bool) -> None:
        place = Place(topic, view.partition, output.offset)
        if output.command in view.dead:
            self._tally.violation(ORIGIN, place, "its command has a dead letter, and had no effect therefore")
        elif any(command.command == output.command for command in view.misplaced):
            return  # That its copy is missing is another rule's.
        elif is_whole:
            self._tally.violation(ORIGIN, place, _NO_COMMAND)
        else:
            doubts = self._of(view, topic)
            doubts.offsets.append(output.offset)
            doubts.timestamps.append(output.timestamp)

    def _known(self, view: EntityView, topic: str, output: Made, lag_ms: int) -> None:
        if lag_ms < 0:
            return  # The command came again, and this output is that of the first time.
        doubts = self._of(view, topic)
        doubts.first_known = min(doubts.first_known, output.offset)
        doubts.most_lag_ms = max(doubts.most_lag_ms, lag_ms)

    def _of(self, view: EntityView, topic: str) -> _Doubts:
        return self._doubts.setdefault(
            (topic, view.partition), _Doubts(commands=(view.topic, view.partition))
        )

    def _is_ahead(self, view: EntityView, offset: int, output: Place) -> None:
        ahead = self.ahead.get((view.topic, view.partition))
        if ahead is None or offset > ahead.offset:
            self.ahead[view.topic, view.partition] = Ahead(offset, output)
