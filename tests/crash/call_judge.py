"""Whether calls had one live lease at a time and were published once, by the topics. Imports nothing of ours.

Every command asks for a reply, and replies are written with what they tell of: so what the coordinator decided is in
the replies, and what it stored is in the changelog.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.crash.history import Row
from tests.crash.state import text_part

CallName = tuple[str, str, str]
"""Run id, tool id, input hash."""

DEFAULT_LEASE_MS = 300_000


@dataclass
class Grant:
    """A lease as the replies tell of it."""

    fencing: int
    given_at: int
    expires_at: int
    command_id: str
    released: bool = False


@dataclass
class CallStory:
    """What the topics tell of one call."""

    grants: dict[int, Grant] = field(default_factory=dict)
    """By fencing number."""
    published: dict[str, tuple[int, Any]] = field(default_factory=dict)
    """By command id: fencing number and value."""
    hits: list[Any] = field(default_factory=list)
    fenced: int = 0
    """How many renewals and publishes were refused."""
    stored: list[dict[str, Any]] = field(default_factory=list)
    """The records of the call, in the order of the changelog."""
    outcomes: list[Any] = field(default_factory=list)
    """The records of its outcome."""


@dataclass
class Verdict:
    """What was found."""

    stories: Mapping[CallName, CallStory]
    violations: Sequence[str]

    @property
    def passed_on(self) -> int:
        """How many leases were followed by another one."""
        return sum(len(story.grants) - 1 for story in self.stories.values() if story.grants)

    @property
    def fenced(self) -> int:
        """How many renewals and publishes were refused for their number."""
        return sum(story.fenced for story in self.stories.values())


def judge(
    commands: Iterable[Row], replies: Iterable[Row], changelog: Iterable[Row], expected: Iterable[CallName]
) -> Verdict:
    """Look at everything; the rows of a topic are in the order of each partition. `expected`: all calls there are."""
    found: list[str] = []
    stories: defaultdict[CallName, CallStory] = defaultdict(CallStory)
    sent = {row.body["commandId"]: row.body for row in commands if "toolId" in row.body}
    renewed: list[tuple[CallStory, int, int]] = []
    for row in replies:
        command = sent.get(row.body.get("commandId", ""))
        if command is not None:
            story = stories[command["runId"], command["toolId"], command["inputHash"]]
            _read_reply(story, command, row.body, renewed, found)
    for story, fencing, expires_at in renewed:
        if fencing not in story.grants:
            found.append(f"fencing number {fencing} was renewed, and nobody got it")
        else:
            story.grants[fencing].expires_at = max(story.grants[fencing].expires_at, expires_at)
    _read_changelog(stories, changelog)
    for name in expected:
        found += [f"{name}: {what}" for what in _violations(stories[name])]
    found += [f"{name}: nobody asked for it" for name in stories.keys() - set(expected)]
    return Verdict(stories, found)


def _read_reply(
    story: CallStory,
    command: dict[str, Any],
    reply: dict[str, Any],
    renewed: list[tuple[CallStory, int, int]],
    found: list[str],
) -> None:
    command_id, type_ = command["commandId"], command["type"]
    if not reply["ok"]:
        code = reply["error"]["code"]
        story.fenced += code == "CALL_FENCED"
        if code != "CALL_FENCED":
            found.append(f"{type_} was refused: {reply['error']}")
        return
    result = reply["result"]
    if type_ == "call.renew":
        renewed.append((story, command["fencingNumber"], result["leaseExpiresAt"]))
    elif type_ == "call.publish":
        if result["published"]:
            told = (command["fencingNumber"], {k: command[k] for k in ("value", "error") if k in command})
            story.published[command_id] = told
        else:
            story.grants[command["fencingNumber"]].released = True
    elif result["status"] == "hit":
        story.hits.append({name: result[name] for name in ("value", "error") if name in result})
    elif result["status"] == "claimed":
        fencing, expires_at = result["fencingNumber"], result["leaseExpiresAt"]
        given_at = expires_at - command.get("leaseMs", DEFAULT_LEASE_MS)
        grant = story.grants.setdefault(fencing, Grant(fencing, given_at, expires_at, command_id))
        if grant.command_id != command_id:
            found.append(f"fencing number {fencing} was given to {grant.command_id} and to {command_id}")


def _read_changelog(stories: Mapping[CallName, CallStory], changelog: Iterable[Row]) -> None:
    names: dict[tuple[bytes, int], CallName] = {}
    outcomes: list[tuple[bytes, int, Any]] = []
    for row in changelog:
        table, rest = text_part(row.key or b"")
        if table == b"run.call" and row.value is not None:
            run, rest = text_part(rest)
            tool, rest = text_part(rest)
            digest, _ = text_part(rest)
            name = (run.decode(), tool.decode(), digest.decode())
            record = json.loads(row.value)
            names[run, record["number"]] = name
            stories[name].stored.append(record)
        elif table == b"run.call_result" and row.value is not None:
            run, number = text_part(rest)
            outcomes.append((run, int.from_bytes(number, "big"), json.loads(row.value)))
    for run, number, outcome in outcomes:
        stories[names[run, number]].outcomes.append(outcome)


def _violations(story: CallStory) -> Iterable[str]:
    grants = [story.grants[fencing] for fencing in sorted(story.grants)]
    if [grant.fencing for grant in grants] != list(range(1, len(grants) + 1)):
        yield f"the fencing numbers {sorted(story.grants)} are not all from 1 on"
    for before, after in pairwise(grants):
        if not before.released and after.given_at < before.expires_at:
            yield f"lease {after.fencing} was given at {after.given_at}, and {before} was alive"
    if not story.published:
        yield "it was never published"
        return
    results = {json.dumps(told, sort_keys=True) for told in story.published.values()}
    if len(results) > 1:
        yield f"it was published as {results}"
    ((fencing, outcome), *_) = story.published.values()
    if not grants or fencing != grants[-1].fencing:
        yield f"it was published under fencing number {fencing}, of {len(grants)}"
    if wrong := [hit for hit in story.hits if hit != outcome]:
        yield f"who asked got {wrong[0]}, and {outcome} was published"
    numbers = [record["fencing_number"] for record in story.stored]
    if numbers != sorted(numbers):
        yield f"the stored fencing numbers went back: {numbers}"
    ended = [record.get("ok") for record in story.stored]
    if None in ended[ended.index(True) :] if True in ended else True:
        yield f"its stored states were {ended}"
    if story.outcomes != [outcome]:
        yield f"stored were {story.outcomes}, and {outcome} was published"
