"""The checker finds nothing wrong with a right history, and each way of breaking one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agents.tables import encode_part
from tests.contract.bare_client import command, key_in_partition, partition_of
from tests.crash.checker import violations
from tests.crash.expected import ExpectedEvent, expected_of
from tests.crash.history import TOPICS, History, Place, Row, SentCommand
from tests.crash.state import text_part

PARTITIONS = 2
RUN, ENDED = key_in_partition(0, PARTITIONS), key_in_partition(1, PARTITIONS)


class Log:
    """Builds the records of topics."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {topic: [] for topic in TOPICS}

    def add(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, **headers: bytes
    ) -> Row:
        """Append a record; an offset in between is a marker's."""
        offset = 2 * sum(row.place.partition == partition for row in self.rows[topic])
        named = tuple((name.replace("_", "-"), content) for name, content in headers.items())
        row = Row(Place(topic, partition, offset), key, value, named)
        self.rows[topic].append(row)
        return row


def stored(event: ExpectedEvent, run_id: str) -> bytes:
    """The bytes of an event."""
    text = {"line": event.text} if event.type == "log" else {"status": event.text}
    body = {"seq": event.seq, "runId": run_id, "type": event.type, "ts": 5, **text}
    return json.dumps({**body, "commandId": event.command_id}).encode()


@pytest.fixture(scope="module")
def right() -> History:
    """A history in which everything happened as it should."""
    log = Log()

    def send(run_id: str, type_: str, command_id: str, *, by: int = 0, **fields: Any) -> Row:
        key, value = run_id.encode(), command(type_, run_id, command_id, **fields)
        partition = (partition_of(key, PARTITIONS) + by) % PARTITIONS
        return log.add("run-commands", partition, key, value, correlation_id=f"to-{command_id}-{by}".encode())

    def say(line: str) -> dict[str, Any]:
        return {"type": "log", "line": line}

    sent = [
        send(RUN, "run.submit", "a1", name="x"),
        send(RUN, "events.append", "a2", event=say("one")),
        send(RUN, "events.append", "a3", event={"type": "status", "status": "half"}),
        send(ENDED, "events.append", "b1", event=say("one")),
        send(ENDED, "terminal.set", "b2", status="failed"),
        send(ENDED, "events.append", "b3", event=say("late")),
        send(ENDED, "events.list", "b4"),
        log.add("run-commands", 0, RUN.encode(), b"not JSON", correlation_id=b"to-bad"),
        log.add("run-commands", 1, ENDED.encode(), None),
    ]
    misrouted = send(RUN, "events.append", "a4", by=1, event=say("misrouted"))
    sent.append(misrouted)
    log.add("run-commands", 0, misrouted.key, misrouted.value, correlation_id=b"to-a4-1")
    again = send(RUN, "events.append", "a2", event=say("again"))
    again = replace(again, headers=(("correlation-id", b"to-a2-again"),))
    log.rows["run-commands"][-1] = again
    sent.append(again)
    expected = expected_of(History(PARTITIONS, log.rows))
    answer_all(log, expected)
    return History(
        PARTITIONS,
        log.rows,
        [SentCommand(row.place.partition, row.place.offset, *row.content) for row in sent],
    )


def answer_all(log: Log, expected: Any) -> None:
    """Fill the outputs and the changelog as a perfect worker would."""
    for key, run in expected.runs.items():
        partition, run_id = partition_of(key, PARTITIONS), key.decode()
        for event in run.events:
            value = stored(event, run_id)
            log.add("run-events", partition, key, value)
            at = b"run.event\0" + key + b"\0" + event.seq.to_bytes(8, "big")
            log.add("state-changelog", partition, at, value)
        head = {"v": 1, "status": run.status, "latest_seq": run.latest_seq}
        log.add("state-changelog", partition, b"run.head\0" + key + b"\0", json.dumps(head).encode())
        if run.ended_by is not None:
            end = json.dumps(
                {
                    "runId": run_id,
                    "seq": run.latest_seq,
                    "status": run.status,
                    "completedAt": 5,
                    "commandId": run.ended_by,
                }
            ).encode()
            log.add("run-terminals", partition, key, end)
            log.add("state-changelog", partition, b"run.terminal\0" + key + b"\0", end)
    for key, command_id in expected.dispatches.items():
        value = json.dumps({"commandId": command_id}).encode()
        log.add("run-dispatch", partition_of(key, PARTITIONS), key, value)
    for (partition, offset), (row, code) in expected.dead_letters.items():
        letter = log.add("dead-letters", partition, row.key, row.value)
        ours = (("runlane.error.code", code.encode()), ("runlane.error.offset", str(offset).encode()))
        log.rows["dead-letters"][-1] = replace(letter, headers=ours)
    for correlation_id, (_, answer) in expected.replies.items():
        body: dict[str, Any] = {}
        for path, value in answer.result.items():
            name, _, inner = path.partition(".")
            body[name] = {inner: value} if inner else value
        reply = {
            "commandId": answer.command_id,
            "ok": answer.ok,
            "result" if answer.ok else "error": body,
        }
        log.add("replies", 0, correlation_id, json.dumps(reply).encode())
    for partition in range(PARTITIONS):
        last = [row for row in log.rows["run-commands"] if row.place.partition == partition][-1]
        progress = json.dumps({"v": 1, "watermarks": {"run-commands": last.place.offset}}).encode()
        log.add("state-changelog", partition, b"lane.progress\0", progress)


def test_nothing_is_wrong_with_a_right_history(right: History) -> None:
    assert violations(right) == []


Change = Callable[[History], History]


def without(topic: str, index: int) -> Change:
    """A record is missing."""
    return lambda history: history.replaced(
        topic, [row for number, row in enumerate(history.rows[topic]) if number != index]
    )


def doubled(topic: str, index: int) -> Change:
    """A record is there twice."""

    def change(history: History) -> History:
        row = history.rows[topic][index]
        again = replace(row, place=row.place._replace(offset=row.place.offset + 1000))
        return history.replaced(topic, [*history.rows[topic], again])

    return change


def edited(topic: str, index: int, **fields: Any) -> Change:
    """Fields of a record's value are others."""

    def change(history: History) -> History:
        rows = list(history.rows[topic])
        rows[index] = replace(rows[index], value=json.dumps({**rows[index].body, **fields}).encode())
        return history.replaced(topic, rows)

    return change


def moved(topic: str, index: int) -> Change:
    """A record is in another partition."""

    def change(history: History) -> History:
        rows = list(history.rows[topic])
        place = rows[index].place
        rows[index] = replace(rows[index], place=place._replace(partition=1 - place.partition, offset=77))
        return history.replaced(topic, rows)

    return change


def swapped(topic: str, first: int, second: int) -> Change:
    """Two records changed places."""

    def change(history: History) -> History:
        rows = list(history.rows[topic])
        rows[first], rows[second] = (
            replace(rows[second], place=rows[first].place),
            replace(rows[first], place=rows[second].place),
        )
        return history.replaced(topic, rows)

    return change


def state_without(table: bytes) -> Change:
    """The last change of a table is missing."""

    def change(history: History) -> History:
        rows = list(history.rows["state-changelog"])
        found = [number for number, row in enumerate(rows) if (row.key or b"").startswith(table + b"\0")]
        del rows[found[-1]]
        return history.replaced("state-changelog", rows)

    return change


def state_edited(table: bytes, **fields: Any) -> Change:
    """The last record of a table has other fields."""

    def change(history: History) -> History:
        rows = history.rows["state-changelog"]
        found = [number for number, row in enumerate(rows) if (row.key or b"").startswith(table + b"\0")]
        return edited("state-changelog", found[-1], **fields)(history)

    return change


def header_edited(topic: str, index: int, name: str, content: bytes) -> Change:
    """A header is another."""

    def change(history: History) -> History:
        rows = list(history.rows[topic])
        headers = tuple((n, content if n == name else c) for n, c in rows[index].headers)
        rows[index] = replace(rows[index], headers=headers)
        return history.replaced(topic, rows)

    return change


def event_after_the_end(history: History) -> History:
    """The late command of the ended run was applied."""
    last = [row for row in history.rows["run-events"] if row.key == ENDED.encode()][-1]
    value = stored(ExpectedEvent(3, "log", "b3", "late"), ENDED)
    late = Row(last.place._replace(offset=1000), last.key, value)
    return history.replaced("run-events", [*history.rows["run-events"], late])


def tombstone_of_an_event(history: History) -> History:
    """An event's record in the changelog was deleted at the end."""
    rows = history.rows["state-changelog"]
    event = next(row for row in rows if (row.key or b"").startswith(b"run.event\0"))
    deletion = Row(event.place._replace(offset=5000), event.key, None)
    return history.replaced("state-changelog", [*rows, deletion])


BROKEN: dict[str, tuple[Change, str]] = {
    "an event is lost": (without("run-events", 1), "lost"),
    "the last event is lost": (without("run-events", -1 % 6), "lost"),
    "an event is there twice": (doubled("run-events", 1), "twice"),
    "a seq is left out": (edited("run-events", 1, seq=3), "seq"),
    "a seq is there twice": (edited("run-events", 2, seq=2), "seq"),
    "events changed places": (swapped("run-events", 1, 2), "seq"),
    "commands were applied in another order": (
        lambda history: edited("run-events", 1, seq=2)(
            edited("run-events", 2, seq=3)(swapped("run-events", 1, 2)(history))
        ),
        "event",
    ),
    "an event has another line": (edited("run-events", 1, line="other"), "event"),
    "an event has an unknown command": (edited("run-events", 1, commandId="zz"), "unexpected"),
    "an event is in another partition": (moved("run-events", 0), "partition"),
    "an event after the end": (event_after_the_end, "after-terminal"),
    "a terminal state is lost": (without("run-terminals", 0), "terminal-lost"),
    "a terminal state is there twice": (doubled("run-terminals", 0), "terminal-twice"),
    "a terminal state differs": (edited("run-terminals", 0, status="completed"), "terminal"),
    "a terminal state of another seq": (edited("run-terminals", 0, seq=9), "terminal"),
    "a terminal state is in another partition": (moved("run-terminals", 0), "partition"),
    "a dispatch is lost": (without("run-dispatch", 0), "dispatch"),
    "a dispatch is there twice": (doubled("run-dispatch", 0), "dispatch"),
    "a dead letter is lost": (without("dead-letters", 0), "dead-letter"),
    "a dead letter is there twice": (doubled("dead-letters", 1), "dead-letter"),
    "a dead letter has another code": (
        header_edited("dead-letters", 0, "runlane.error.code", b"INVALID_KEY"),
        "dead-letter",
    ),
    "a dead letter of a right command": (
        header_edited("dead-letters", 0, "runlane.error.offset", b"0"),
        "dead-letter",
    ),
    "a reply is lost": (without("replies", 0), "reply"),
    "a reply is there twice": (doubled("replies", 0), "reply"),
    "a reply says something else": (edited("replies", 1, result={"seq": 9}), "reply"),
    "a refusal was answered ok": (edited("replies", 5, ok=True, result={}), "reply"),
    "a reply to nobody": (
        lambda h: h.replaced("replies", [*h.rows["replies"], Row(Place("replies", 0, 99), b"x", b"{}")]),
        "reply",
    ),
    "a forward is lost": (without("run-commands", 10), "forward"),
    "a forward is there twice": (doubled("run-commands", 10), "forward"),
    "a forward has other headers": (header_edited("run-commands", 10, "correlation-id", b"x"), "forward"),
    "a command that was sent is not there": (without("run-commands", 1), "sent"),
    "the head is behind": (state_edited(b"run.head", latest_seq=1), "state"),
    "the head has another status": (state_edited(b"run.head", status="x"), "state"),
    "a head is missing": (state_without(b"run.head"), "state"),
    "an event is missing in the state": (state_without(b"run.event"), "state"),
    "an event is deleted in the state": (tombstone_of_an_event, "state"),
    "an event differs in the state": (state_edited(b"run.event", line="other"), "state"),
    "a terminal state is missing in the state": (state_without(b"run.terminal"), "state"),
    "the watermark is behind": (state_edited(b"lane.progress", watermarks={"run-commands": 2}), "watermark"),
    "the watermark is missing": (state_without(b"lane.progress"), "watermark"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_history_is_found_out(right: History, what: str) -> None:
    change, rule = BROKEN[what]
    found = violations(change(right))
    assert rule in {violation.rule for violation in found}, [str(violation) for violation in found]


def with_unknown_offset(history: History, index: int) -> History:
    """The broker did not tell where it put a command."""
    sent = list(history.sent)
    sent[index] = replace(sent[index], offset=None)
    return replace(history, sent=sent)


def test_an_acknowledged_command_may_be_anywhere_in_its_partition(right: History) -> None:
    for index in range(len(right.sent)):
        assert violations(with_unknown_offset(right, index)) == []
    lost = without("run-commands", 1)(with_unknown_offset(right, 1))
    assert "sent" in {violation.rule for violation in violations(lost)}


def test_a_violation_names_its_place(right: History) -> None:
    change, _ = BROKEN["an event is there twice"]
    (where,) = {violation.where for violation in violations(change(right)) if violation.rule == "seq"}
    assert where == "run-events[0]@1002"


@pytest.mark.parametrize("text", ["run", "", "a\0b", "\1", "\1\0\1\1\2", "é\0"])
def test_keys_are_read_as_lanes_write_them(text: str) -> None:
    rest = b"\0\1\2\3\4\5\6\7"
    assert text_part(encode_part(text) + rest) == (text.encode(), rest)
