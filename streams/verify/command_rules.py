"""Rules about commands, of any family: each one up to the watermark has had its effect, once, or has been refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

from streams.verify.digests import NOTHING
from streams.verify.entity import EntityView
from streams.verify.family import Reply, VerifiedFamily
from streams.verify.findings import Place, Rule
from streams.verify.reading import Reading
from streams.verify.rows import EXPECTED, CommandSeen, Remembered, Says

COMMAND = Rule(
    "command",
    "Every command up to the watermark was applied, answered, refused, recognised as a repeat, forwarded or "
    "dead-lettered.",
    "commands without an effect whose answer is remembered no longer and whose reply is gone",
)
FORWARD = Rule(
    "forward",
    "Every command in a wrong partition was forwarded to the right one, as it was.",
    "copies that retention may have removed, or that an open transaction hides",
)

FATES = (
    "applied",
    "answered",
    "refused",
    "repeated",
    "questions",
    "forwarded",
    "dead-lettered",
    "lost",
    "not checkable",
    "pending",
)
"""What can become of a command; `answered`: accepted without an event, such as an end that had been set before."""

_RETENTION = "retention has removed the beginning of the log"
_OPEN = "an open transaction hides the end of the log"
_GONE = "its answer is remembered no longer"

_EITHER = Says.YES | Says.NO
_ANY = Reply(_EITHER)


class CommandRules:
    """Follows the commands of one family's entities, and notes what their replies have to say."""

    def __init__(
        self, family: VerifiedFamily[Any], number: int, reading: Reading, fates: Counter[str]
    ) -> None:
        """`number` is the family's position among all; `fates` counts what became of the commands."""
        self._family = family
        self._number = number
        self._cut = reading.cut
        self._tally = reading.tally
        self._expect = reading.writer(EXPECTED)
        self._fates = fates

    def check(self, view: EntityView) -> None:
        """Hold the commands of one entity against the rules."""
        self._check_taken(view)
        if view.misplaced:
            self._check_forwarded(view)

    def _check_taken(self, view: EntityView) -> None:
        questions, watermark = self._family.questions, view.watermark
        first, effects = view.first, view.has_effect
        is_whole = self._cut.ranges[view.topic, view.partition].is_whole
        newer = sum(command.type not in questions and command.offset <= watermark for command in view.taken)
        counts = dict.fromkeys(FATES, 0)
        checked = 0
        for command in view.taken:
            says = 0
            if command.offset > watermark:
                counts["pending"] += 1
                if command.correlation:
                    self._note(command, _ANY, Says.LATER)
                continue
            checked += 1
            if command.type in questions:
                counts["questions"] += 1
                if command.correlation:
                    self._note(command, self._family.reply(view, command), says)
                continue
            newer -= 1
            counted = view.taken[first[command.command]]
            if counted is not command:
                # Whatever it says, it gets the first answer, unless that is forgotten.
                counts["repeated"] += 1
            elif command.command in effects:
                counts["applied"] += 1
            elif state := view.state_of(command.command):
                counts["refused" if state == Remembered.REFUSED else "answered"] += 1
            elif view.may_be_forgotten(command, newer):
                # A reply may still tell: then it is counted when the replies are read.
                says = Says.FORGOTTEN
                if not command.correlation:
                    self._forgotten()
            else:
                says = Says.LOST
                if not command.correlation:
                    self._lost(Place(view.topic, command.partition, command.offset))
            if command.correlation:
                # Its id may be that of another command, which retention has removed and whose answer it then got.
                is_known = command.command in effects or view.state_of(command.command)
                if not (is_whole or is_known) or view.may_take_effect_again(command.command):
                    self._note(command, _ANY, says)
                else:
                    self._note_first(view, command, counted, says)
        self._tally.checked(COMMAND, checked)
        for fate, number in counts.items():
            self._fates[fate] += number

    def _note_first(self, view: EntityView, command: CommandSeen, first: CommandSeen, says: int) -> None:
        """Note what the reply to a command has to say: the same as that to the first with its id."""
        reply = self._family.reply(view, first)
        if not reply.says & Says.ANEW:
            says |= Says.ONCE
        answer = view.remembered.get(command.command)
        if answer is None or answer.state == Remembered.FORGOTTEN:
            self._note(command, reply, says)
        elif answer.state == Remembered.REFUSED:
            self._note(command, reply, says, Says.NO, answer.said)
        else:
            self._note(command, reply, says, Says.YES, answer.said)

    def _check_forwarded(self, view: EntityView) -> None:
        copies = Counter(command.content for command in view.taken)
        due = Counter(command.content for command in view.misplaced)
        for command in view.misplaced:
            if command.offset > self._cut.watermark(view.topic, command.partition):
                self._fates["pending"] += 1
                continue
            self._tally.checked(COMMAND)
            self._tally.checked(FORWARD)
            self._fates["forwarded"] += 1
            if copies[command.content] >= due[command.content]:
                continue
            found = self._cut.ranges[view.topic, view.partition]
            if not found.is_whole:
                self._tally.unknown(FORWARD, _RETENTION)
            elif not found.is_settled:
                self._tally.unknown(FORWARD, _OPEN)
            else:
                self._tally.violation(
                    FORWARD,
                    Place(view.topic, command.partition, command.offset),
                    f"belongs into partition {view.partition}, and is not there",
                )

    def settle_forgotten(self, says: int, place: Place, *, has_reply: bool, is_accepted: bool) -> None:
        """Say how a command fared that only its reply tells of."""
        if has_reply:
            self._fates["answered" if is_accepted else "refused"] += 1
        elif says & Says.LOST:
            self._lost(place)
        else:
            self._forgotten()

    def _forgotten(self) -> None:
        self._fates["not checkable"] += 1
        self._tally.unknown(COMMAND, _GONE)

    def _lost(self, place: Place) -> None:
        self._fates["lost"] += 1
        self._tally.violation(
            COMMAND, place, "is done by the watermark, but there is no event, no answer and no dead letter"
        )

    def _note(
        self, command: CommandSeen, reply: Reply, says: int, remembered: int = 0, said: int = NOTHING
    ) -> None:
        """`remembered`: `YES` or `NO` when it is known which it was, whatever the events tell."""
        allowed = reply.says & ~_EITHER | remembered if remembered else reply.says
        self._expect(
            command.command,
            command.key,
            command.command,
            command.correlation,
            command.offset,
            command.timestamp,
            reply.seq,
            reply.ts,
            reply.end,
            NOTHING,
            reply.least,
            said,
            reply.content,
            reply.other,
            reply.grants,
            command.partition,
            command.reply_partition,
            self._number,
            allowed | says,
        )
