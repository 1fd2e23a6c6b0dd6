"""What was sent beside what came of it, by one reading of the topics from their beginning to their end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from schemas.replies import CORRELATION_ID
from schemas.topics import DEAD_LETTERS, REPLIES, RUN_EVENTS
from streams.messaging.topic_scan import scan_topic
from streams.settings import Settings
from streams.torture.load import Proof
from streams.torture.sender import SentRecord

_OF_A_TIMER = "timer:"


@dataclass
class Findings:
    """What the topics hold, as far as it can be traced to a record of the load."""

    events: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By command id and type of the event."""
    replies: Counter[bytes] = field(default_factory=Counter)
    """By correlation id."""
    dead_letters: Counter[bytes] = field(default_factory=Counter)
    """By correlation id."""
    log: dict[tuple[str, int, int], tuple[bytes | None, bytes | None]] = field(default_factory=dict)
    """Key and value of the records of the command topics, by topic, partition and offset."""


@dataclass(frozen=True)
class Account:
    """The load settled against the findings."""

    sent: dict[str, int]
    """Records by kind."""
    acknowledged: int
    applied: int
    """Different commands of the load that made an event."""
    answered: int
    """Records that asked for a reply and got it."""
    buried: int
    """Records that are dead letters."""
    other_events: int
    """Events of commands that the load has not sent: those of executors."""
    lost: list[str]
    """Records that Kafka had acknowledged and of which nothing came, in words."""
    twice: list[str]
    """What came of one record, or one command, more than once."""


def read_findings(settings: Settings, topics: Iterable[str]) -> Findings:
    """Read the outputs, and these command topics (names without prefix). Raises `UserError` if it cannot."""
    findings = Findings()
    for record in _scan(settings, RUN_EVENTS.name):
        event = orjson.loads(record.value())
        findings.events[event["commandId"], event["type"]] += 1
    findings.replies.update(record.key() for record in _scan(settings, REPLIES.name))
    for record in _scan(settings, DEAD_LETTERS.name):
        findings.dead_letters[dict(record.headers() or ()).get(CORRELATION_ID, b"")] += 1
    for topic in topics:
        for record in _scan(settings, topic):
            findings.log[topic, record.partition(), record.offset()] = record.key(), record.value()
    return findings


def settle(sent: Iterable[SentRecord], findings: Findings) -> Account:
    """Compare what was sent with what came of it."""
    records = list(sent)
    by_command: Counter[str] = Counter()
    for (command_id, _), count in findings.events.items():
        by_command[command_id] += count
    ours = {record.command_id for record in records if record.command_id is not None}
    answered = [record for record in records if _asked_and_got(record, findings.replies)]
    return Account(
        sent=dict(sorted(Counter(record.kind for record in records).items())),
        acknowledged=sum(record.acknowledged for record in records),
        applied=sum(command_id in by_command for command_id in ours),
        answered=len(answered),
        buried=sum(_asked_and_got(record, findings.dead_letters) for record in records),
        other_events=sum(count for command_id, count in by_command.items() if command_id not in ours),
        lost=list(_lost(records, by_command, findings)),
        twice=list(_twice(records, findings)),
    )


def _asked_and_got(record: SentRecord, found: Counter[bytes]) -> bool:
    return record.correlation_id is not None and found[record.correlation_id] > 0


def _lost(records: list[SentRecord], by_command: Counter[str], findings: Findings) -> Iterator[str]:
    contents = {(topic, partition, *content) for (topic, partition, _), content in findings.log.items()}
    for record in records:
        if not record.acknowledged:
            yield f"{_name(record)} was never acknowledged"
            continue
        if record.offset is None:
            is_there = (record.topic, record.partition, record.key, record.value) in contents
        else:
            found = findings.log.get((record.topic, record.partition, record.offset))
            is_there = found == (record.key, record.value)
        if not is_there:
            yield f"{_name(record)} is not where the broker has put it"
        if record.proof is Proof.EVENT and not by_command[record.command_id or ""]:
            yield f"{_name(record)} made no event"
        if record.proof is Proof.DEAD_LETTER and not _asked_and_got(record, findings.dead_letters):
            yield f"{_name(record)} is no dead letter"
        if record.correlation_id is not None and not findings.replies[record.correlation_id]:
            yield f"{_name(record)} got no answer"


def _twice(records: list[SentRecord], findings: Findings) -> Iterator[str]:
    for (command_id, type_), count in findings.events.items():
        if count > 1 and not command_id.startswith(_OF_A_TIMER):
            yield f"command {command_id} made {count} {type_} events"
    for record in records:
        if record.correlation_id is None:
            continue
        if (count := findings.replies[record.correlation_id]) > 1:
            yield f"{_name(record)} got {count} answers"
        if (count := findings.dead_letters[record.correlation_id]) > 1:
            yield f"{_name(record)} is {count} dead letters"


def _name(record: SentRecord) -> str:
    return f"{record.kind} {record.command_id} on {record.topic}[{record.partition}]@{record.offset}"


def _scan(settings: Settings, topic: str) -> Iterator[Any]:
    return scan_topic(settings, settings.name(topic), settings.partitions)
