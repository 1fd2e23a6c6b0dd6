"""What always holds for the answers about runs: how often they come, what they say of calls, and in which order."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agents.run.tables import CALLS, HEADS
from schemas.topics import REPLIES, RUN_COMMANDS, RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS, STATE_CHANGELOG
from streams.partitioner import partition_for
from tests.simulation.families.registry import Committed
from tests.simulation.families.run_drafts import CLEAR_TEXT
from tests.simulation.partition_log import LogRecord

_NEVER_IN_THE_CLEAR = (REPLIES, RUN_DISPATCH, RUN_EVENTS, RUN_TERMINALS, STATE_CHANGELOG)


class Exchange(NamedTuple):
    """A command and one of its answers."""

    command: Mapping[str, Any]
    offset: int
    """Where the command was sent first, in the partition that owns the run."""
    result: Mapping[str, Any]
    partition: int
    """Of the reply."""


@dataclass
class CallStory:
    """What the topics tell of one call."""

    owners: dict[int, set[str]] = field(default_factory=dict)
    """Fencing number -> the commands that were told to have it."""
    given_at: dict[int, int] = field(default_factory=dict)
    expires_at: dict[int, dict[int, set[int]]] = field(default_factory=dict)
    """Fencing number -> offset of the claim or renewal -> the time until which its owner was told to have it."""
    renewals: dict[int, set[int]] = field(default_factory=dict)
    """Fencing number -> offsets of what may have changed its lease."""
    released: set[int] = field(default_factory=set)
    """Fencing numbers that somebody may have given up."""
    hits: set[str] = field(default_factory=set)
    published: set[tuple[int, str]] = field(default_factory=set)
    """Fencing number and outcome of what was accepted."""
    ended_under: set[int] = field(default_factory=set)
    """The fencing number of the stored outcome."""


def answered_once(committed: Committed) -> Iterator[str]:
    """No command is answered more often than it was sent."""
    sent = Counter(_correlation(record) for record in _records(committed, RUN_COMMANDS.name))
    answered = Counter(_correlation(record) for record in _records(committed, REPLIES.name))
    for correlation in sent:
        if correlation is not None and answered[correlation] > sent[correlation]:
            yield (
                f"{correlation!r} was answered {answered[correlation]} times, and sent {sent[correlation]} times"
            )


def calls(committed: Committed) -> Iterator[str]:
    """A call is one command's at a time; it has one outcome, of the number that holds, and all who ask get that."""
    forgotten = _forgotten(committed)
    stories: defaultdict[tuple[str, str, str], CallStory] = defaultdict(CallStory)
    for command, offset, result, _ in _exchanges(committed):
        if "toolId" in command and command["runId"] not in forgotten:
            _tell(stories[command["runId"], command["toolId"], command["inputHash"]], command, offset, result)
    for command, offset in _commands(committed):
        if "fencingNumber" in command:
            story = stories[command["runId"], command["toolId"], command["inputHash"]]
            if command["type"] == "call.renew":
                story.renewals.setdefault(command["fencingNumber"], set()).add(offset)
            elif command.get("onFailure") == "release":
                story.released.add(command["fencingNumber"])
    for partition in committed[STATE_CHANGELOG.name]:
        for record in partition:
            if (record.key or b"").startswith(CALLS.prefix) and record.value is not None:
                stored = CALLS.decode(record.value)
                if stored.ok is not None:
                    stories[CALLS.parts(record.key or b"")].ended_under.add(stored.fencing_number)
    for call, story in stories.items():
        if call[0] not in forgotten:
            yield from (f"{call}: {what}" for what in _wrong_about(story))


def _tell(story: CallStory, command: Mapping[str, Any], offset: int, result: Mapping[str, Any]) -> None:
    """Add an answer to the story of its call."""
    if result.get("status") == "claimed":
        number, expires_at = result["fencingNumber"], result["leaseExpiresAt"]
        story.owners.setdefault(number, set()).add(command["commandId"])
        story.given_at[number] = expires_at - command["leaseMs"]
        story.expires_at.setdefault(number, {}).setdefault(offset, set()).add(expires_at)
    elif result.get("status") == "hit":
        story.hits.add(_outcome(result))
    elif result.get("published"):
        story.published.add((command["fencingNumber"], _outcome(command)))
    elif command["type"] == "call.renew":
        number, expires_at = command["fencingNumber"], result["leaseExpiresAt"]
        story.expires_at.setdefault(number, {}).setdefault(offset, set()).add(expires_at)


def _wrong_about(story: CallStory) -> Iterator[str]:
    for number, owners in story.owners.items():
        if len(owners) > 1:
            yield f"fencing number {number} was given to {sorted(owners)}"
        told = story.expires_at.get(number - 1, {})
        # Not when a renewal took effect again, or unheard.
        is_clear = all(len(times) == 1 for times in told.values()) and (
            story.renewals.get(number - 1, set()) <= told.keys()
        )
        if number - 1 not in story.released and told and is_clear:
            (expires_at,) = told[max(told)]  # A renewal may also shorten a lease.
            if story.given_at[number] < expires_at:
                yield f"fencing number {number} was given while the one before held"
    if len({outcome for _, outcome in story.published} | story.hits) > 1:
        yield f"published was {story.published}, who asked got {story.hits}"
    if wrong := {number for number, _ in story.published} - story.ended_under:
        yield f"published under {wrong}, stored under {story.ended_under}"
    if len(story.ended_under) > 1:
        yield f"published under {story.ended_under}"


def results_in_order(committed: Committed) -> Iterator[str]:
    """What is awaited is what was sent, and later answers never say something older."""
    offsets = _offsets_of_results(committed)
    latest: defaultdict[tuple[Any, ...], int] = defaultdict(int)
    for command, _, result, partition in _exchanges(committed):
        if command["type"] not in ("child.terminal.get", "child.terminal.await") or result["state"] is None:
            continue
        run, state = command["runId"], result["state"]
        at = offsets[run, state["data"]["n"]]
        asked = (partition, run, state["eventKey"])
        index = bisect_left(at, latest[asked])
        if index == len(at):
            yield f"{asked} got {state}, sent at {at}, after what was sent at {latest[asked]}"
        else:
            latest[asked] = at[index]


def retries_within_limits(committed: Committed) -> Iterator[str]:
    """No attempt is given beyond what its claim allows."""
    for command, _, result, _ in _exchanges(committed):
        is_given = command["type"] == "retry.claim" and result["claimed"]
        if is_given and not 1 <= result["attempts"] <= command["maxAttempts"]:
            yield f"{command} got attempt {result['attempts']}"


def secrets(committed: Committed) -> Iterator[str]:
    """What somebody forgot to encrypt is in no output and in no state."""
    mark = CLEAR_TEXT.encode()
    for topic in _NEVER_IN_THE_CLEAR:
        for record in _records(committed, topic.name):
            if mark in (record.value or b""):
                yield f"{topic.name} shows a session in the clear: {record.value!r}"


def _commands(committed: Committed) -> Iterator[tuple[dict[str, Any], int]]:
    """The commands with their offsets, of each partition those whose runs it owns."""
    partitions = committed[RUN_COMMANDS.name]
    for number, records in enumerate(partitions):
        for record in records:
            if partition_for(record.key or b"", len(partitions)) == number and (command := _command(record)):
                yield command, record.offset


def _exchanges(committed: Committed) -> Iterator[Exchange]:
    """Each successful answer with its command, in the order of each reply partition."""
    sent: dict[str, tuple[dict[str, Any], int]] = {}
    for command, offset in _commands(committed):
        sent.setdefault(command["commandId"], (command, offset))
    for partition, records in enumerate(committed[REPLIES.name]):
        for record in records:
            reply = json.loads(record.value or b"")
            if reply["ok"] and reply["commandId"] in sent:
                yield Exchange(*sent[reply["commandId"]], reply["result"], partition)


def _offsets_of_results(committed: Committed) -> Mapping[tuple[str, int], list[int]]:
    """(run id, number in the data) -> where it was sent."""
    offsets: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for command, offset in _commands(committed):
        data = command.get("payload") or command.get("data")
        if isinstance(data, dict):
            offsets[command["runId"], data["n"]].append(offset)
    return offsets


def _forgotten(committed: Committed) -> set[str]:
    """The runs that were evicted and forgotten: their numbers begin again."""
    found = set()
    for partition in committed[STATE_CHANGELOG.name]:
        evicted: set[bytes] = set()
        for record in partition:
            key = record.key or b""
            if not key.startswith(HEADS.prefix):
                continue
            if record.value is not None and HEADS.decode(record.value).evicted:
                evicted.add(key)
            elif record.value is None and key in evicted:
                found.add(HEADS.parts(key)[0])
    return found


def _records(committed: Committed, topic: str) -> Iterator[LogRecord]:
    for partition in committed[topic]:
        yield from partition


def _command(record: LogRecord) -> dict[str, Any] | None:
    try:
        body = json.loads(record.value or b"")
    except ValueError:
        return None
    return body if isinstance(body, dict) and "commandId" in body else None


def _correlation(record: LogRecord) -> bytes | None:
    return next((value for name, value in record.headers if name == "correlation-id"), None)


def _outcome(told: Mapping[str, Any]) -> str:
    return json.dumps({name: told[name] for name in ("value", "error") if told.get(name) is not None})
