"""The demo, as a newcomer starts it, and the account with which it closes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Producer

from schemas import dead_letters as names
from streams.demo.ledger import Ledger, read_ledger
from streams.settings import Settings
from tests.worker_process import worker_environment

_PATIENCE_S = 300


def play(broker: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """`runlane demo` to its end; it may leave neither files nor processes."""
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", "demo", "--runs", "12", "--delete-topics", *options],
        env=worker_environment(RUNLANE_BROKERS=broker, TMPDIR=str(folder)),
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, said
    assert list(folder.iterdir()) == []
    pids = [int(pid) for pid in re.findall(r"process (\d+)", done.stderr)]
    assert pids, said
    assert not any(_is_ours(pid) for pid in pids)
    return done


def _is_ours(pid: int) -> bool:
    try:
        return "streams.cli" in psutil.Process(pid).cmdline()
    except psutil.NoSuchProcess:
        return False


def test_a_killed_worker_loses_nothing_and_repeats_nothing(broker: str, tmp_path: Path) -> None:
    done = play(broker, tmp_path, "--json")
    account = json.loads(done.stdout)
    assert "kill -9 of the worker" in done.stderr
    assert account["outageSeconds"] > 0
    assert (account["lost"], account["twice"], account["seqGaps"], account["problems"]) == (0, 0, 0, [])
    assert (account["runs"], account["dispatches"]) == (12, 12)
    assert account["ended"] == {"completed": 10, "failed": 2}
    assert account["applied"] == account["commands"] == account["events"] > 12 * 5
    assert account["repeats"] >= 1
    assert account["deadLetters"] == {"INVALID_COMMAND_ID": 1, "INVALID_JSON": 1, "UNKNOWN_COMMAND": 1}


def test_it_closes_with_a_table_that_people_can_read(broker: str, tmp_path: Path) -> None:
    done = play(broker, tmp_path, "--no-kill")
    rows = dict(re.findall(r"^ *(\S[^\d\n]*?)  +([\d,]+)\b", done.stdout, re.MULTILINE))
    assert {
        name: rows[name] for name in ("lost", "twice", "gaps in seq", "events after an end")
    } == dict.fromkeys(("lost", "twice", "gaps in seq", "events after an end"), "0")
    assert (rows["runs submitted"], rows["completed"], rows["failed"]) == ("12", "10", "2")
    assert rows["commands sent"] == rows["applied"] == rows["events"]
    assert "Every command was applied exactly once." in done.stdout
    assert "km from its nearest neighbour" in done.stdout
    assert "failed: UnknownStateError: the data set has no airport in a state 'ZZ'" in done.stdout
    assert "kill" not in done.stderr


class Forger:
    """Writes on the topics of a prefix that no worker serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.producer = Producer({"bootstrap.servers": settings.brokers})

    def write(self, topic: str, value: Any, key: str = "r", headers: dict[str, bytes] | None = None) -> None:
        """Append a record to partition 0."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.producer.produce(self.settings.name(topic), data, key, 0, headers=list((headers or {}).items()))
        assert self.producer.flush(30) == 0

    def command(self, command_id: str, type_: str = "events.append", key: str = "r") -> None:
        """A command, sent."""
        self.write("run-commands", {"type": type_, "commandId": command_id, "runId": key}, key)

    def event(self, command_id: str, seq: int, type_: str = "log", key: str = "r") -> None:
        """An event that a command made."""
        event = {"runId": key, "seq": seq, "type": type_, "commandId": command_id, "status": "failed"}
        self.write("run-events", event, key)

    def answer(self, command_id: str, *, ok: bool) -> None:
        """A reply."""
        self.write("replies", {"commandId": command_id, "ok": ok})

    def end(self, command_id: str, seq: int, status: str, key: str = "r") -> None:
        """A run's end on `run-terminals`."""
        end = {"runId": key, "seq": seq, "status": status, "commandId": command_id}
        self.write("run-terminals", end, key)

    def dispatch(self, command_id: str) -> None:
        """A run's dispatch."""
        self.write("run-dispatch", {"commandId": command_id})

    def bury(self, offset: int) -> None:
        """The dead letter of a record on `run-commands`."""
        place = {
            names.CODE: b"INVALID_JSON",
            names.TOPIC: self.settings.name("run-commands").encode(),
            names.PARTITION: b"0",
            names.OFFSET: b"%d" % offset,
        }
        self.write("dead-letters", b"{", headers=place)

    def faults(self) -> dict[str, int]:
        """What the account finds wrong."""
        return {name: count for name, count in self.account().faults.items() if count}

    def account(self) -> Ledger:
        """The account."""
        return read_ledger(self.settings)


def test_the_account_of_what_is_right_is_clean(settings: Settings) -> None:
    forger = Forger(settings)
    forger.command("s", "run.submit")
    forger.dispatch("s")
    forger.event("s", 1)
    forger.command("s", "run.submit")
    forger.command("s-again", "run.submit")
    forger.answer("s-again", ok=True)
    forger.command("q", "run.status")
    forger.write("run-commands", b"{")
    forger.bury(4)
    forger.command("e", "terminal.set")
    forger.event("e", 2, "terminal")
    forger.end("e", 2, "failed")
    forger.command("late", "events.append")
    forger.answer("late", ok=False)
    forger.command("c", "run.cancel")
    forger.answer("c", ok=True)
    account = forger.account()
    assert account.faults == dict.fromkeys(account.faults, 0)
    assert (account.records, account.commands, account.repeats, account.questions) == (8, 5, 1, 1)
    assert (account.applied, account.refused, account.nothing_to_do, account.runs) == (2, 1, 2, 1)
    assert (account.events, account.dispatches, account.dead_letters.total()) == (2, 1, 1)
    assert account.statuses == {"failed": 1}


def test_the_account_finds_what_is_lost(settings: Settings) -> None:
    forger = Forger(settings)
    forger.command("no answer")
    forger.command("a yes, and no event")
    forger.answer("a yes, and no event", ok=True)
    forger.command("no dispatch", "run.submit")
    forger.event("no dispatch", 1)
    forger.write("run-commands", b"no dead letter")
    assert forger.faults() == {"lost": 4}


def test_the_account_finds_what_happened_twice(settings: Settings) -> None:
    forger = Forger(settings)
    forger.command("s", "run.submit")
    forger.dispatch("s")
    forger.dispatch("s")
    forger.event("s", 1)
    forger.event("s", 2)
    forger.write("run-commands", b"{")
    forger.bury(1)
    forger.bury(1)
    assert forger.faults() == {"twice": 3}


def test_the_account_finds_gaps_and_what_comes_after_an_end(settings: Settings) -> None:
    forger = Forger(settings)
    for number, (seq, type_) in enumerate([(1, "log"), (3, "log"), (4, "terminal"), (5, "log")]):
        forger.command(f"c{number}")
        forger.event(f"c{number}", seq, type_)
    forger.end("c2", 4, "failed")
    assert forger.faults() == {"gaps in seq": 1, "events after an end": 1}


def test_the_account_finds_ends_that_differ(settings: Settings) -> None:
    forger = Forger(settings)
    for key in ("other status", "no end", "same"):
        forger.command(key, "terminal.set", key)
        forger.event(key, 1, "terminal", key)
    forger.end("other status", 1, "completed", "other status")
    forger.end("same", 1, "failed", "same")
    forger.end("no event", 1, "failed", "no event")
    assert forger.faults() == {"ends unlike the last event": 3}
