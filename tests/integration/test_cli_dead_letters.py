"""`runlane dead-letters`, on a real worker and on dead letters of every kind."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from schemas import dead_letters as names
from streams.messaging.topic_scan import scan_topic
from streams.partitioner import partition_for
from streams.settings import Settings
from tests import serving
from tests.integration.command_line import CommandLine
from tests.waiting import wait_until

Headers = list[tuple[str, bytes | None]]

OWN_HEADERS: Headers = [("a", b"1"), ("nothing", None), ("a", b""), ("bytes", b"\xff\x00")]


@pytest.fixture(scope="module")
def served(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Settings of a prefix that a worker serves."""
    settings = Settings(brokers=broker, prefix=f"cli{uuid.uuid4().hex[:8]}")
    with serving.served(settings, tmp_path_factory.mktemp("worker")):
        yield settings


@pytest.fixture(scope="module")
def cli(served: Settings) -> CommandLine:
    """The command line for that worker."""
    return CommandLine(served.brokers or "", served.prefix)


@pytest.fixture(scope="module")
def producer(served: Settings) -> Producer:
    """Sends any bytes."""
    return Producer(
        {
            "bootstrap.servers": served.brokers,
            "partitioner": "murmur2_random",
            "message.max.bytes": 16 * 1024 * 1024,
            "compression.type": "gzip",
        }
    )


@pytest.fixture
def key() -> str:
    """A key that nobody has used before."""
    return f"key-{uuid.uuid4().hex[:12]}"


class Box:
    """The dead letters of one key, by the command line."""

    def __init__(self, cli: CommandLine, settings: Settings, producer: Producer, key: str) -> None:
        self.cli = cli
        self.settings = settings
        self.producer = producer
        self.key = key

    def send(self, value: bytes | None, headers: Headers | None = None) -> None:
        """Send a record to `run-commands`."""
        topic = self.settings.name("run-commands")
        self.producer.produce(topic, value, self.key, headers=headers or [])
        assert self.producer.flush(30) == 0

    def bury(
        self, value: bytes | None, code: str, extra: Headers | None = None, *, topic: bool = True
    ) -> None:
        """Write a dead letter as a lane would, for what cannot be provoked from outside."""
        headers: Headers = [*OWN_HEADERS, (names.CODE, code.encode()), (names.MESSAGE, b"said so")]
        if topic:
            headers.append((names.TOPIC, self.settings.name("run-commands").encode()))
        headers += [(names.PARTITION, b"0"), (names.OFFSET, b"7"), (names.TIMESTAMP, b"1"), *(extra or [])]
        partition = partition_for(self.key.encode(), self.settings.partitions)
        self.producer.produce(self.settings.name("dead-letters"), value, self.key, partition, headers=headers)
        assert self.producer.flush(30) == 0

    def listed(self, *options: str) -> list[dict[str, Any]]:
        """What `list` shows of the key."""
        found = self.cli.json("dead-letters", "list", "--limit", "1000", *options)
        return [letter for letter in found if letter["key"] == self.key]

    def only(self) -> str:
        """The place of the key's only dead letter, once it is there."""
        wait_until(lambda: len(self.listed()) == 1, "one dead letter")
        return place(self.listed()[0])

    def records(self) -> list[Any]:
        """The key's records on `run-commands`, in their order."""
        topic = self.settings.name("run-commands")
        found = scan_topic(self.settings, topic, self.settings.partitions)
        return [record for record in found if record.key() == self.key.encode()]


@pytest.fixture
def box(cli: CommandLine, served: Settings, producer: Producer, key: str) -> Box:
    """Dead letters of a key of its own."""
    return Box(cli, served, producer, key)


def place(letter: dict[str, Any]) -> str:
    """A listed dead letter's name on the command line."""
    return f"{letter['partition']}:{letter['offset']}"


def test_the_list_has_what_is_needed_to_choose(box: Box) -> None:
    box.send(b"{not json")
    box.only()
    (letter,) = box.listed()
    record = box.records()[0]
    assert letter["code"] == "INVALID_JSON"
    assert "not JSON" in letter["message"]
    assert letter["topic"] == box.settings.name("run-commands")
    assert (letter["originalPartition"], letter["originalOffset"]) == (record.partition(), record.offset())
    assert letter["originalTimestamp"] == record.timestamp()[1] <= letter["timestamp"]
    assert (letter["valueBytes"], letter["notReplayable"]) == (9, None)
    for_people = box.cli("dead-letters", "list")
    assert f"run-commands[{record.partition()}]@{record.offset()}" in for_people
    assert place(letter) in for_people


def test_the_list_is_newest_first_and_can_be_cut_and_filtered(box: Box) -> None:
    box.send(b"{")
    wait_until(lambda: len(box.listed()) == 1, "a dead letter")
    box.send(b'{"type": "run.fly"}')
    wait_until(lambda: len(box.listed()) == 2, "two dead letters")
    assert [letter["code"] for letter in box.listed()] == ["UNKNOWN_COMMAND", "INVALID_JSON"]
    assert [letter["code"] for letter in box.listed("--code", "INVALID_JSON")] == ["INVALID_JSON"]
    assert len(box.listed("--code", "INVALID_JSON", "--code", "UNKNOWN_COMMAND")) == 2
    assert len(box.listed("--topic", "run-commands")) == 2
    assert len(box.listed("--topic", box.settings.name("run-commands"))) == 2
    assert box.listed("--topic", "rate-commands") == []
    newest = box.cli.json("dead-letters", "list", "-n", "1")
    assert [letter["key"] for letter in newest] == [box.key]
    assert "older" in box.cli.errors("dead-letters", "list", "-n", "1", code=0)
    assert box.cli("dead-letters", "list", "--code", "NONE") == "No dead letters with the code NONE.\n"


def test_show_prints_headers_and_value(box: Box) -> None:
    box.send(b'{"type": "run.fly", "runId": 1}', OWN_HEADERS)
    where = box.only()
    letter = box.cli.json("dead-letters", "show", where)
    assert letter["value"] == '{"type": "run.fly", "runId": 1}'
    assert letter["headers"] == [
        {"name": "a", "value": "1"},
        {"name": "nothing", "value": None},
        {"name": "a", "value": ""},
        {"name": "bytes", "valueHex": "ff00"},
    ]
    for_people = box.cli("dead-letters", "show", where)
    assert '"runId": 1' in for_people
    assert "0xff00" in for_people
    assert "UNKNOWN_COMMAND" in for_people


def test_show_prints_what_is_no_text_in_hex(box: Box) -> None:
    box.send(b"\xff\x1b[2J")
    for_people = box.cli("dead-letters", "show", box.only())
    assert "00000000  ff 1b 5b 32 4a" in for_people
    assert "\x1b" not in for_people


def test_show_prints_the_traceback(box: Box) -> None:
    box.bury(b"{}", "INTERNAL_ERROR", [(names.TRACEBACK, b"Traceback: here\nand there")])
    where = box.only()
    assert "Traceback: here\nand there" in box.cli("dead-letters", "show", where)
    assert box.cli.json("dead-letters", "show", where)["traceback"] == "Traceback: here\nand there"


@pytest.mark.parametrize(("where", "code"), [("0:999999", 1), ("99:0", 1), ("here", 2), ("1:-1", 2)])
def test_a_place_without_a_dead_letter_is_an_error(cli: CommandLine, where: str, code: int) -> None:
    for command in ("show", "replay"):
        error = cli.error("dead-letters", command, where, code=code)
        assert error["hint"]


def test_a_replayed_command_is_applied_once_however_often_it_is_replayed(box: Box) -> None:
    command = {
        "type": "events.append",
        "commandId": "c",
        "runId": box.key,
        "event": {"type": "log", "line": "x"},
    }
    box.bury(json.dumps(command).encode(), "INTERNAL_ERROR", [(names.TRACEBACK, b"t")])
    where = box.only()
    for number in (1, 2):
        answer = box.cli.json("dead-letters", "replay", where, "--yes")
        assert [item["place"] for item in answer["replayed"]] == [where]
        record = box.records()[-1]
        assert len(box.records()) == number
        assert record.headers() == OWN_HEADERS
        assert record.value() == json.dumps(command).encode()
        assert (answer["replayed"][0]["partition"], answer["replayed"][0]["offset"]) == (
            record.partition(),
            record.offset(),
        )
    state = box.cli.json("status", box.key)
    assert (state["status"], state["latestSeq"]) == ("running", 1)
    assert len(box.listed()) == 1


@pytest.mark.parametrize("value", [None, b"", b"\x00\xff"], ids=repr)
def test_any_value_is_sent_again_unchanged(box: Box, value: bytes | None) -> None:
    box.bury(value, "INTERNAL_ERROR")
    box.cli("dead-letters", "replay", box.only(), "--yes")
    (record,) = box.records()
    assert (record.value(), record.headers()) == (value, OWN_HEADERS)


def test_replay_asks_first(box: Box) -> None:
    box.bury(b"{}", "INTERNAL_ERROR")
    where = box.only()
    asked = box.cli.errors("dead-letters", "replay", where, stdin="n\n", code=1)
    assert f"Send the dead letter {where} again to {box.settings.name('run-commands')}?" in asked
    box.cli.errors("dead-letters", "replay", where, stdin="", code=1)
    assert box.records() == []
    sent = box.cli("dead-letters", "replay", where, stdin="y\n")
    assert f"sent {where} to" in sent
    assert len(box.records()) == 1


def test_all_of_a_code_are_sent_and_those_that_cannot_be_are_named(box: Box) -> None:
    code = f"CODE_{uuid.uuid4().hex}"
    for number in range(3):
        box.bury(b'{"number": %d}' % number, code)
    box.bury(None, code, [(names.VALUE_BYTES, b"5000000")])
    wait_until(lambda: len(box.listed()) == 4, "four dead letters")
    left_out = next(letter for letter in box.listed() if letter["valueBytes"] == 5_000_000)
    answer = box.cli.json("dead-letters", "replay", "--all", "--code", code, "--yes")
    assert [record.value() for record in box.records()] == [b'{"number": %d}' % number for number in range(3)]
    assert len(answer["replayed"]) == 3
    assert [item["place"] for item in answer["refused"]] == [place(left_out)]


@pytest.mark.parametrize(
    ("code", "extra", "topic", "reason"),
    [
        (
            "COMMAND_TOO_LARGE",
            [(names.VALUE_BYTES, b"5000000")],
            True,
            "5000000 bytes was too large to be kept",
        ),
        ("COMMANDS_EXPIRED", [], True, "it is a notice, not a command"),
        ("SOMETHING", [], False, names.TOPIC),
    ],
)
def test_what_cannot_be_sent_again_is_refused(
    box: Box, code: str, extra: Headers, topic: bool, reason: str
) -> None:
    box.bury(None, code, extra, topic=topic)
    where = box.only()
    error = box.cli.error("dead-letters", "replay", where, "--yes")
    assert where in error["message"]
    assert reason in error["message"]
    assert reason in box.listed()[0]["notReplayable"]
    assert reason in " ".join(box.cli("dead-letters", "show", where).split())
    assert box.records() == []


def test_a_value_that_a_lane_left_out_is_refused(box: Box) -> None:
    box.send(b" " * (5 * 1024 * 1024))
    where = box.only()
    assert box.listed()[0]["valueBytes"] == 5 * 1024 * 1024
    assert "too large to be kept" in box.cli.error("dead-letters", "replay", where, "-y")["message"]


@pytest.mark.parametrize(
    "arguments", [(), ("--all",), ("0:1", "--all", "--code", "X"), ("0:1", "--code", "X")], ids=str
)
def test_replay_wants_one_place_or_all_of_a_code(cli: CommandLine, arguments: tuple[str, ...]) -> None:
    cli.error("dead-letters", "replay", *arguments, code=2)
