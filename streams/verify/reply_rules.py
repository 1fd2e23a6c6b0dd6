"""The rule about replies: what they say is what happened, and who asked was told, once for each time."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from schemas.topics import REPLIES as REPLIES_TOPIC
from streams.verify.command_rules import CommandRules
from streams.verify.digests import NOTHING
from streams.verify.findings import Place, Rule
from streams.verify.reading import Reading
from streams.verify.rows import GRANTED, Expected, ReplySeen, Says

REPLY = Rule(
    "reply",
    "Every command that asked for a reply got one for each time it was sent, in the partition that it named; replies "
    "agree with the events, with what was stored, with the answers that the changelog remembers, and those to one "
    "command with each other.",
    "replies that retention has removed, and replies to commands that it has removed",
)

_CLOCK_SLACK_MS = 60_000
_USUAL_LAG_MS = 24 * 3600 * 1000
_UNTOLD = Says.LOST | Says.FORGOTTEN


@dataclass
class _Asked:
    """All that belongs to one command id and one correlation id."""

    expected: list[Expected] = field(default_factory=list)
    replies: list[ReplySeen] = field(default_factory=list)


class ReplyRules:
    """Holds replies against what they have to say."""

    def __init__(self, families: Sequence[CommandRules], topics: Sequence[str], reading: Reading) -> None:
        """`families` and the `topics` of their commands, by position."""
        self._families = families
        self._topics = topics
        self._reading = reading
        self._tally = reading.tally
        self._cut = reading.cut
        self._grant = reading.writer(GRANTED)
        self._unasked = (array("q"), array("q"), array("q"))
        """Partitions, offsets and times of replies that nobody asked for."""
        self._most_lag_ms = 0
        """The longest time between a command and its reply."""

    def check(self, expected: Iterable[Expected], replies: Iterable[ReplySeen]) -> None:
        """Hold one bucket of replies against the rule: all that belong together are in it."""
        asked: defaultdict[tuple[int, int], _Asked] = defaultdict(_Asked)
        for due in expected:
            asked[due.command, due.correlation].expected.append(due)
        for reply in replies:
            asked[reply.command, reply.correlation].replies.append(reply)
        by_command: defaultdict[tuple[int, int, int], list[ReplySeen]] = defaultdict(list)
        for each in asked.values():
            self._tally.checked(REPLY, len(each.replies))
            if not each.expected:
                if self._cut.only is None:
                    for reply in each.replies:
                        self._nobody_asked(reply)
                continue
            for reply in each.replies:
                self._check_one(reply, each.expected)
            self._check_number(each)
            self._note_grants(each)
            first = each.expected[0]
            if first.command and all(due.says & Says.ONCE for due in each.expected):
                by_command[first.topic, first.key, first.command] += each.replies
        for same in by_command.values():
            self._check_same(same)

    def _place(self, reply: ReplySeen) -> Place:
        return Place(REPLIES_TOPIC.name, reply.partition, reply.offset)

    def _asked_at(self, due: Expected) -> Place:
        return Place(self._topics[due.topic], due.partition, due.offset)

    def settle(self) -> None:
        """Once all buckets were seen: decide on replies that nobody asked for, as far as the log of commands shows."""
        since = max(
            (
                found.first_timestamp if found.first_timestamp is not None else 2**62
                for (topic, _), found in self._cut.ranges.items()
                if topic in self._topics and not found.is_whole
            ),
            default=0,
        )
        since += max(self._most_lag_ms, _USUAL_LAG_MS) if since else 0
        for partition, offset, timestamp in zip(*self._unasked, strict=True):
            if self._reading.hidden_addresses:
                self._tally.unknown(REPLY, "commands whose headers the native client does not read")
            elif timestamp < since:
                self._tally.unknown(REPLY, "replies to commands that retention may have removed")
            else:
                self._tally.violation(
                    REPLY,
                    Place(REPLIES_TOPIC.name, partition, offset),
                    "no command with its `commandId` asked by its correlation id, or not so often",
                )

    def _nobody_asked(self, reply: ReplySeen) -> None:
        fields = (reply.partition, reply.offset, reply.timestamp)
        for column, value in zip(self._unasked, fields, strict=True):
            column.append(value)

    def _check_one(self, reply: ReplySeen, expected: Sequence[Expected]) -> None:
        """A reply is right when it is right for any of the commands that asked this way."""
        problem = ""
        self._most_lag_ms = max(self._most_lag_ms, reply.timestamp - expected[0].timestamp)
        for due in expected:
            problem = _wrong(reply, due)
            if not problem:
                return
        self._tally.violation(REPLY, self._place(reply), problem, self._asked_at(expected[0]))

    def _check_number(self, asked: _Asked) -> None:
        """As many replies as commands asked; some may be gone, or come later."""
        expected, replies = asked.expected, asked.replies
        for surplus in replies[len(expected) :]:
            self._nobody_asked(surplus)
        missing = len(expected) - len(replies)
        for due in expected:
            if due.says & _UNTOLD:
                self._families[due.topic].settle_forgotten(
                    due.says,
                    self._asked_at(due),
                    has_reply=bool(replies),
                    is_accepted=bool(replies and replies[0].ok),
                )
            if missing > 0 and not due.says & (Says.LATER | Says.LOST):
                missing -= 1
                self._missing(due)

    def _note_grants(self, asked: _Asked) -> None:
        grants = asked.expected[0].grants
        if grants != NOTHING:
            for reply in asked.replies:
                if reply.number >= 0:
                    self._grant(grants, reply.number, reply.command, reply.offset, reply.partition)

    def _missing(self, due: Expected) -> None:
        self._tally.checked(REPLY)
        found = self._cut.ranges[REPLIES_TOPIC.name, due.reply_partition]
        is_gone = not found.is_whole and (
            found.first_timestamp is None or due.timestamp < found.first_timestamp + _CLOCK_SLACK_MS
        )
        if is_gone:
            self._tally.unknown(REPLY, "replies that retention has removed")
        elif not found.is_settled:
            self._tally.unknown(REPLY, "an open transaction hides the end of the log")
        else:
            what = f"asked for a reply in partition {due.reply_partition}, and there is none"
            self._tally.violation(REPLY, self._asked_at(due), what)

    def _check_same(self, replies: Sequence[ReplySeen]) -> None:
        for reply in replies[1:]:
            if reply.answer != replies[0].answer:
                self._tally.violation(
                    REPLY,
                    self._place(reply),
                    "answers a command otherwise than it was answered before",
                    self._place(replies[0]),
                )


def _wrong(reply: ReplySeen, due: Expected) -> str:
    """What a reply says wrongly; empty when all is right."""
    if reply.partition != due.reply_partition:
        return f"is not in partition {due.reply_partition}, where it was asked for"
    if reply.ok and not due.says & Says.YES:
        return "accepts a command that had no effect"
    if not reply.ok and not due.says & Says.NO:
        return "refuses a command that was applied"
    if due.end not in (NOTHING, reply.end) and reply.end != NOTHING:
        return "holds another terminal state than the run has"
    if due.said not in (NOTHING, reply.answer):
        return "says otherwise than the changelog remembers of it"
    if not reply.ok:
        return (
            "names another error code than the dead letter" if due.code not in (NOTHING, reply.code) else ""
        )
    if due.content != NOTHING and reply.content not in (due.content, due.other):
        return "shows another content than was stored when the command was processed"
    if due.seq >= 0 and reply.seq != due.seq:
        return f"says `seq` {reply.seq}, and the event has {due.seq}" if reply.seq >= 0 else "says no `seq`"
    if due.ts not in (NOTHING, reply.ts):
        return "says another time than the event has"
    if 0 <= reply.latest < due.least:
        return f"says that the latest event is {reply.latest}, when {due.least} had been written"
    return ""
