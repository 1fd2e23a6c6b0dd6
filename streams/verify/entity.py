"""One entity's commands beside what is remembered of them and what they did."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any

from streams.verify.cut import Cut
from streams.verify.rows import AnswerSeen, CommandSeen, Fate, Remembered


class EntityView:
    """What every rule may know of an entity."""

    def __init__(
        self,
        topic: str,
        commands: Sequence[CommandSeen],
        answers: Iterable[AnswerSeen],
        effects: Iterable[Any],
        questions: Container[int],
        partition: int,
        cut: Cut,
    ) -> None:
        """`effects`: one output of each command that has outputs. `questions`: the types that change nothing.

        `partition` is the entity's own.
        """
        self.topic = topic
        self.partition = partition
        self.cut = cut
        self.watermark = cut.watermark(topic, partition)
        self.clock = cut.lanes[partition].clock
        self.taken = [command for command in commands if command.fate == Fate.TAKEN]
        """In its own partition and without a dead letter, in the order of the log."""
        self.misplaced = [command for command in commands if command.fate == Fate.MISPLACED]
        self.dead = {command.command for command in commands if command.fate == Fate.DEAD}
        self.first: dict[int, int] = {}
        """Command id, of commands that are no questions -> position in `taken` where it stands first."""
        self.again: dict[int, list[int]] = {}
        """Command id -> further positions."""
        for position, command in enumerate(self.taken):
            if command.type in questions:
                continue
            if self.first.setdefault(command.command, position) != position:
                self.again.setdefault(command.command, []).append(position)
        self.remembered = {answer.command: answer for answer in answers}
        """Command id -> the latest of what the changelog remembers."""
        self.has_effect = {effect.command for effect in effects}
        self.forgets_all = False
        """The answers may have been dropped all at once."""

    def state_of(self, command: int) -> int:
        """What is remembered of a command id, see `Remembered`."""
        answer = self.remembered.get(command)
        return answer.state if answer is not None else Remembered.FORGOTTEN

    def may_be_forgotten(self, command: CommandSeen, newer: int) -> bool:
        """Whether the answer to a command may be gone, with so many newer commands that are no questions."""
        return (
            self.forgets_all
            or newer >= self.cut.repeats.commands
            or self.clock - command.timestamp >= self.cut.repeats.ms
        )

    def may_be_repeat(self, command: CommandSeen) -> bool:
        """Whether a command may repeat one that retention has removed, and was still remembered."""
        found = self.cut.ranges[self.topic, self.partition]
        return not found.is_whole and (
            found.first_timestamp is None or command.timestamp - found.first_timestamp < self.cut.repeats.ms
        )

    def may_take_effect_again(self, command: int) -> bool:
        """Whether a command id was sent again, and may have been forgotten in between."""
        if command not in self.again:
            return False
        if self.forgets_all:
            return True
        before = self.taken[self.first[command]]
        position = self.first[command]
        for following in self.again[command]:
            after = self.taken[following]
            # Half the time: how long a command lay in the log before it was processed is not known.
            if (
                following - position >= self.cut.repeats.commands
                or after.timestamp - before.timestamp >= self.cut.repeats.ms // 2
            ):
                return True
            before, position = after, following
        return False
