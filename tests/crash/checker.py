"""An independent checker of histories: it reads only the topics and what the client sent; it imports nothing of ours.

Violations name the rule and the place of the record. A history is to be complete: every command is processed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from tests.contract.bare_client import partition_of
from tests.crash.expected import Expected, ExpectedEvent, RunModel, expected_of
from tests.crash.history import History, Row, Violation
from tests.crash.state import LaneState, fold

KEPT_EVENTS = 500


def violations(history: History, keys: bytes = b"") -> list[Violation]:
    """Every way in which the history breaks what is promised; empty when all is well.

    `keys`: look at the runs whose ids begin so, when others do more than this checker knows of.
    """
    chosen = history.of_keys(keys) if keys else history
    expected = expected_of(chosen)
    found = list(check_watermarks(history))
    for check in CHECKS:
        found += check(chosen, expected)
    return found


def check_sent_is_in_the_log(history: History, expected: Expected) -> Iterator[Violation]:
    """What the broker acknowledged to the client is in the log."""
    log = {(row.place.partition, row.place.offset): row for row in history.rows["run-commands"]}
    contents = {(row.place.partition, row.content) for row in history.rows["run-commands"]}
    for sent in history.sent:
        if sent.offset is None:
            if (sent.partition, sent.content) not in contents:
                yield Violation("sent", f"run-commands[{sent.partition}]", f"{sent.content} is not there")
            continue
        row = log.get((sent.partition, sent.offset))
        if row is None or row.content != sent.content:
            yield Violation("sent", f"run-commands[{sent.partition}]@{sent.offset}", "is not what was sent")


def check_forwards(history: History, expected: Expected) -> Iterator[Violation]:
    """Each command in a wrong partition was forwarded to the right one, once and unchanged."""
    sent = {(command.partition, command.offset) for command in history.sent}
    copies = Counter(
        row.content
        for row in history.rows["run-commands"]
        if (row.place.partition, row.place.offset) not in sent
    )
    copies.subtract(command.content for command in history.sent if command.offset is None)
    wanted = Counter(row.content for row in expected.forwarded)
    places = {row.content: str(row.place) for row in expected.forwarded}
    for content in wanted.keys() | copies.keys():
        if wanted[content] != copies[content]:
            where = places.get(content, f"key {content.key!r}")
            yield Violation("forward", where, f"forwarded {copies[content]} times, not {wanted[content]}")


def check_events(history: History, expected: Expected) -> Iterator[Violation]:
    """Every command applied exactly once; `seq` dense per run; nothing after a terminal event."""
    by_run: dict[bytes, list[Row]] = {}
    for row in history.rows["run-events"]:
        by_run.setdefault(row.key or b"", []).append(row)
    for run_id in by_run.keys() | expected.runs.keys():
        rows = by_run.get(run_id, [])
        yield from _dense_and_ended(run_id, rows, history.partitions)
        yield from _exactly_once(run_id, rows, expected.runs[run_id])


def _dense_and_ended(run_id: bytes, rows: list[Row], partitions: int) -> Iterator[Violation]:
    ended = False
    for position, row in enumerate(rows, start=1):
        event, where = row.body, str(row.place)
        if row.place.partition != partition_of(run_id, partitions):
            yield Violation("partition", where, f"an event of {run_id!r} in another partition")
        if event.get("seq") != position:
            yield Violation("seq", where, f"seq {event.get('seq')} of {run_id!r} where {position} is due")
        if ended:
            yield Violation("after-terminal", where, f"an event of {run_id!r} after its end")
        ended = ended or event.get("type") == "terminal"


def _exactly_once(run_id: bytes, rows: list[Row], run: RunModel) -> Iterator[Violation]:
    found = [_event(row) for row in rows]
    if found == run.events:
        return
    times = Counter(event.command_id for event in found)
    for row, event in zip(rows, found, strict=True):
        if times[event.command_id] > 1:
            yield Violation("twice", str(row.place), f"{event.command_id} of {run_id!r} is here again")
    wanted = {event.command_id: event for event in run.events}
    for command_id in wanted.keys() - times.keys():
        yield Violation("lost", f"run {run_id!r}", f"{wanted[command_id]} is missing")
    for row, event in zip(rows, found, strict=True):
        if event.command_id not in wanted:
            yield Violation("unexpected", str(row.place), f"{event} of {run_id!r} has no command")
        elif event != wanted[event.command_id] and times[event.command_id] == 1:
            yield Violation("event", str(row.place), f"{event} where {wanted[event.command_id]} is due")


def _event(row: Row) -> ExpectedEvent:
    body = row.body
    text = body.get("line", body.get("status"))
    return ExpectedEvent(body.get("seq", 0), body.get("type", ""), body.get("commandId", ""), text or "")


def check_terminals(history: History, expected: Expected) -> Iterator[Violation]:
    """The terminal topic equals the terminal events, one record per ended run."""
    ends = {row.key: row for row in history.rows["run-events"] if row.body.get("type") == "terminal"}
    seen: set[bytes | None] = set()
    for row in history.rows["run-terminals"]:
        where = str(row.place)
        if row.key in seen:
            yield Violation("terminal-twice", where, f"a second terminal state of {row.key!r}")
        seen.add(row.key)
        end = ends.get(row.key)
        if end is None:
            yield Violation("terminal", where, f"{row.key!r} has no terminal event")
        elif _end_of(row.body) != _end_of(end.body):
            yield Violation("terminal", where, f"differs from the event at {end.place}")
        if row.place.partition != partition_of(row.key or b"", history.partitions):
            yield Violation("partition", where, f"the end of {row.key!r} in another partition")
    for key in ends.keys() - seen:
        yield Violation("terminal-lost", str(ends[key].place), f"no terminal state of {key!r}")


def _end_of(body: dict[str, Any]) -> dict[str, Any]:
    completed_at = body.get("completedAt", body.get("ts"))
    return {
        **{name: value for name, value in body.items() if name not in ("type", "ts", "completedAt")},
        "at": completed_at,
    }


def check_dispatches(history: History, expected: Expected) -> Iterator[Violation]:
    """Each submitted run was dispatched once."""
    found = Counter((row.key, row.body.get("commandId")) for row in history.rows["run-dispatch"])
    for pair in found.keys() | expected.dispatches.items():
        due = 1 if expected.dispatches.get(pair[0] or b"") == pair[1] else 0
        if found[pair] != due:
            yield Violation("dispatch", f"run {pair[0]!r}", f"dispatched {found[pair]} times, not {due}")


def check_dead_letters(history: History, expected: Expected) -> Iterator[Violation]:
    """Each record with a wrong envelope is a dead letter once, with its code, and nothing else is one."""
    found: Counter[tuple[int, int]] = Counter()
    for letter in history.rows["dead-letters"]:
        where = str(letter.place)
        at = (letter.place.partition, int(letter.header("runlane.error.offset") or -1))
        found[at] += 1
        row, code = expected.dead_letters.get(at, (None, ""))
        if row is None:
            said = letter.header("runlane.error.code")
            yield Violation("dead-letter", where, f"{said!r} for offset {at[1]}, which is a right command")
        elif (letter.key, letter.value) != (row.key, row.value):
            yield Violation("dead-letter", where, f"is not the record at {row.place}")
        elif letter.header("runlane.error.code") != code.encode():
            yield Violation("dead-letter", where, f"{letter.header('runlane.error.code')!r}, not {code}")
    for at, (row, code) in expected.dead_letters.items():
        if found[at] != 1:
            yield Violation("dead-letter", str(row.place), f"{found[at]} dead letters ({code}), not 1")


def check_replies(history: History, expected: Expected) -> Iterator[Violation]:
    """Each command that asked got one answer, and it says what happened."""
    found: Counter[bytes] = Counter()
    for row in history.rows["replies"]:
        correlation_id = row.key or b""
        found[correlation_id] += 1
        if correlation_id not in expected.replies:
            yield Violation("reply", str(row.place), f"nobody asked as {correlation_id!r}")
            continue
        place, answer = expected.replies[correlation_id]
        body = row.body
        said = body.get("result" if answer.ok else "error") or {}
        result = {name: _field(said, name) for name in answer.result}
        if (body.get("commandId"), body.get("ok"), result) != (answer.command_id, answer.ok, answer.result):
            yield Violation("reply", str(row.place), f"{body} to {place}, where {answer} is due")
    for correlation_id, (place, _) in expected.replies.items():
        if found[correlation_id] != 1:
            yield Violation("reply", str(place), f"{found[correlation_id]} answers, not 1")


def _field(body: dict[str, Any], path: str) -> Any:
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def check_state(history: History, expected: Expected) -> Iterator[Violation]:
    """The fold of the changelog equals the events and the ends."""
    for partition in range(history.partitions):
        state = fold(history.partition("state-changelog", partition))
        where = f"state-changelog[{partition}]"
        events: dict[bytes, dict[int, bytes]] = {}
        for row in history.partition("run-events", partition):
            events.setdefault(row.key or b"", {})[row.body.get("seq", 0)] = row.value or b""
        yield from _heads(where, state, events, expected)
        for run_id in events.keys() | state.events.keys():
            kept = dict(sorted(events.get(run_id, {}).items())[-KEPT_EVENTS:])
            if kept != state.events.get(run_id, {}):
                yield Violation(
                    "state", where, f"the kept events of {run_id!r} are not the newest of its topic"
                )
        ends = {row.key: row.value for row in history.partition("run-terminals", partition)}
        if ends != state.terminals:
            wrong = {
                key
                for key in ends.keys() | state.terminals.keys()
                if ends.get(key) != state.terminals.get(key or b"")
            }
            yield Violation("state", where, f"the terminal states of {sorted(map(repr, wrong))} differ")
        if state.waits:
            yield Violation("state", where, f"{state.waits} waits are left")


def check_watermarks(history: History) -> Iterator[Violation]:
    """By the changelog, every command in the log is done."""
    for partition in range(history.partitions):
        commands = history.partition("run-commands", partition)
        state = fold(history.partition("state-changelog", partition))
        done = state.progress.get("watermarks", {}).get("run-commands", -1)
        if commands and done != commands[-1].place.offset:
            where = f"state-changelog[{partition}]"
            yield Violation("watermark", where, f"is {done}, the last command is {commands[-1].place}")


def _heads(
    where: str, state: LaneState, events: dict[bytes, dict[int, bytes]], expected: Expected
) -> Iterator[Violation]:
    for run_id in state.heads.keys() | events.keys():
        head = state.heads.get(run_id, {})
        latest = max(events.get(run_id, {}), default=0)
        if head.get("latest_seq", 0) != latest:
            yield Violation(
                "state", where, f"{run_id!r} is at {head.get('latest_seq', 0)}, its events at {latest}"
            )
        last = json.loads(events[run_id][latest]) if latest else {}
        status = last["status"] if last.get("type") == "terminal" else "running"
        if head.get("status") != status:
            yield Violation("state", where, f"{run_id!r} is {head.get('status')}, by its events {status}")


CHECKS: tuple[Callable[[History, Expected], Iterator[Violation]], ...] = (
    check_sent_is_in_the_log,
    check_forwards,
    check_events,
    check_terminals,
    check_dispatches,
    check_dead_letters,
    check_replies,
    check_state,
)
