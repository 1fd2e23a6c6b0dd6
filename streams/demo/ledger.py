"""What the topics say happened: a reader that knows nothing but what is in them.

It shares no state with whoever sent the commands: it reads every record of the prefix from the first to the
last, and settles each command against the events, refusals and dead letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from schemas import dead_letters
from schemas.run_commands import RUN_COMMANDS as RUN_COMMAND_SET
from schemas.topics import (
    DEAD_LETTERS,
    REPLIES,
    RUN_COMMANDS,
    RUN_DISPATCH,
    RUN_EVENTS,
    RUN_TERMINALS,
    TopicSpec,
)
from streams.messaging.topic_scan import scan_topic
from streams.settings import Settings

_QUESTIONS = {type_ for type_, model in RUN_COMMAND_SET.by_type.items() if model.is_question}
_MAY_HAVE_NOTHING_TO_DO = {"terminal.set", "run.cancel", "run.finish"}
_END_FIELDS = (
    "runId",
    "seq",
    "status",
    "result",
    "error",
    "totalRows",
    "durationMs",
    "playName",
    "commandId",
)


@dataclass
class Ledger:
    """The account of one prefix; everything in `faults` has to be 0.

    Command ids are taken to be unique over all runs, as those of the demo are.

    `records` = `commands` + `repeats` + `questions` + `dead_letters` (those of `run-commands`) + broken ones
    that are lost; `commands` = `applied` + `refused` + `nothing_to_do` + those that are lost.
    """

    records: int = 0
    """Records on `run-commands`."""
    commands: int = 0
    """Different commands that may change something."""
    repeats: int = 0
    """Records with the id of a command that came before."""
    questions: int = 0
    runs: int = 0
    """Different runs that were submitted."""
    applied: int = 0
    """Commands with an event."""
    refused: int = 0
    nothing_to_do: int = 0
    """Commands that were answered with yes and changed nothing, such as the cancelling of an ended run."""
    events: int = 0
    dispatches: int = 0
    dead_letters: Counter[str] = field(default_factory=Counter)
    """By their code."""
    ends: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How each run ended, as `run-terminals` has it."""
    lost: int = 0
    """Records of which nothing came, and submitted runs that were not dispatched."""
    twice: int = 0
    """What came of one command, one broken record or one run beyond the first time."""
    seq_gaps: int = 0
    """Events whose `seq` is not the one after its predecessor's in the run, from 1."""
    after_end: int = 0
    """Events of a run after its terminal event."""
    unlike_ends: int = 0
    """Runs whose end on `run-terminals` is not their terminal event."""

    @property
    def statuses(self) -> Counter[str]:
        """Runs by how they ended."""
        return Counter(end["status"] for end in self.ends.values())

    @property
    def faults(self) -> dict[str, int]:
        """What must not be there, by its name in words."""
        return {
            "lost": self.lost,
            "twice": self.twice,
            "gaps in seq": self.seq_gaps,
            "events after an end": self.after_end,
            "ends unlike the last event": self.unlike_ends,
        }

    @property
    def is_clean(self) -> bool:
        """Whether everything happened exactly once."""
        return not any(self.faults.values())


def read_ledger(settings: Settings) -> Ledger:
    """The account of all topics of the prefix, read once to their ends. Raises `UserError` if it cannot."""
    ledger = Ledger()
    buried = _read_dead_letters(settings, ledger)
    sent = _read_commands(settings, ledger, buried)
    events = _read_events(settings, ledger)
    dispatches = Counter(
        orjson.loads(record.value())["commandId"] for record in _scan(settings, RUN_DISPATCH)
    )
    ledger.dispatches = dispatches.total()
    replies = [orjson.loads(record.value()) for record in _scan(settings, REPLIES)]
    answers = {reply["commandId"]: reply["ok"] for reply in replies}
    started = {run_id for command_id, (_, run_id) in sent.items() if dispatches[command_id]}
    for command_id, (type_, run_id) in sent.items():
        answer = answers.get(command_id)
        is_submit = type_ == "run.submit"
        if events[command_id]:
            ledger.applied += 1
            ledger.lost += is_submit and not dispatches[command_id]
        elif answer is False:
            ledger.refused += 1
        elif answer is True and (type_ in _MAY_HAVE_NOTHING_TO_DO or (is_submit and run_id in started)):
            ledger.nothing_to_do += 1
        else:
            ledger.lost += 1
    for counts in (buried, events, dispatches):
        ledger.twice += sum(count - 1 for count in counts.values())
    return ledger


def _read_dead_letters(settings: Settings, ledger: Ledger) -> Counter[tuple[bytes, bytes]]:
    """How many dead letters there are of each place (partition, offset) in `run-commands`."""
    places: Counter[tuple[bytes, bytes]] = Counter()
    commands = settings.name(RUN_COMMANDS.name).encode()
    for record in _scan(settings, DEAD_LETTERS):
        # Of a doubled header the last one is ours.
        headers = dict(record.headers())
        ledger.dead_letters[headers[dead_letters.CODE].decode()] += 1
        if headers[dead_letters.TOPIC] == commands:
            places[headers[dead_letters.PARTITION], headers[dead_letters.OFFSET]] += 1
    return places


def _read_commands(
    settings: Settings, ledger: Ledger, buried: Counter[tuple[bytes, bytes]]
) -> dict[str, tuple[str, str]]:
    """Type and run of each command that may change something, by its id."""
    sent: dict[str, tuple[str, str]] = {}
    submitted = set()
    for record in _scan(settings, RUN_COMMANDS):
        ledger.records += 1
        if buried[b"%d" % record.partition(), b"%d" % record.offset()]:
            continue
        command = _command(record)
        if command is None:
            ledger.lost += 1
        elif command["type"] in _QUESTIONS:
            ledger.questions += 1
        elif command["commandId"] in sent:
            ledger.repeats += 1
        else:
            sent[command["commandId"]] = command["type"], command["runId"]
            if command["type"] == "run.submit":
                submitted.add(command["runId"])
    ledger.commands, ledger.runs = len(sent), len(submitted)
    return sent


def _command(record: Any) -> dict[str, Any] | None:
    try:
        value = orjson.loads(record.value() or b"")
        right = value["type"] in RUN_COMMAND_SET.by_type and value["runId"].encode() == record.key()
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return value if right else None


def _read_events(settings: Settings, ledger: Ledger) -> Counter[str]:
    """How many events each command made."""
    by_command: Counter[str] = Counter()
    latest: Counter[str] = Counter()
    last_events: dict[str, dict[str, Any]] = {}
    for record in _scan(settings, RUN_EVENTS):
        event = orjson.loads(record.value())
        run_id = event["runId"]
        ledger.events += 1
        ledger.seq_gaps += event["seq"] != latest[run_id] + 1
        ledger.after_end += run_id in last_events
        latest[run_id] = event["seq"]
        by_command[event["commandId"]] += 1
        if event["type"] == "terminal":
            last_events[run_id] = event
    for record in _scan(settings, RUN_TERMINALS):
        end = orjson.loads(record.value())
        ledger.twice += end["runId"] in ledger.ends
        ledger.ends[end["runId"]] = end
    for run_id in ledger.ends.keys() | last_events.keys():
        both = [[end.get(run_id, {}).get(name) for name in _END_FIELDS] for end in (ledger.ends, last_events)]
        ledger.unlike_ends += both[0] != both[1]
    return by_command


def _scan(settings: Settings, spec: TopicSpec) -> Iterator[Any]:
    return scan_topic(settings, settings.name(spec.name), settings.partitions)
