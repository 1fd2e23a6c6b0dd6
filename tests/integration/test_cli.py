"""The commands about runs, on a real worker."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from schemas.export import exported
from streams.launching.session_keys import KeyRing
from streams.messaging.topic_scan import scan_topic
from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from tests import serving
from tests.conftest import MakeSettings
from tests.integration.command_line import CommandLine, interrupt, next_json
from tests.waiting import wait_until


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
def client(served: Settings) -> Iterator[RunlaneSyncClient]:
    """A client of that worker, in the executor's place."""
    with RunlaneSyncClient(served) as client:
        yield client


@pytest.fixture
def run_id() -> str:
    """A run that nobody has named before."""
    return f"run-{uuid.uuid4().hex[:12]}"


def test_a_run_from_its_submit_to_its_end(cli: CommandLine, client: RunlaneSyncClient, run_id: str) -> None:
    submitted = cli.json("submit", "import", "--run-id", run_id, "--params", '{"day": 31}')
    assert (submitted["runId"], submitted["status"], submitted["seq"]) == (run_id, "running", 1)
    assert cli.json("status", run_id)["status"] == "running"
    client.log(run_id, "half way")
    client.complete(run_id, {"rows": 7}, total_rows=7)
    state = cli.json("status", run_id)
    assert (state["status"], state["result"], state["totalRows"]) == ("completed", {"rows": 7}, 7)
    assert (state["latestSeq"], cli.json("status", run_id, "--wait")["seq"]) == (3, 3)
    events = cli.lines("events", run_id)
    assert [(event["seq"], event["type"]) for event in events] == [(1, "status"), (2, "log"), (3, "terminal")]
    assert "logs" not in events[0]
    assert cli.lines("events", run_id, "--from-seq", "3") == events[2:]


def test_the_calls_of_a_run(cli: CommandLine, client: RunlaneSyncClient, run_id: str) -> None:
    assert cli.json("calls", run_id) == {"size": 0, "waiters": 0, "entries": [], "more": False}
    client.claim_call(run_id, "fetch[red]", "5e1f", "host\n1", lease_ms=3_600_000)
    client.claim_call(run_id, "send", "77aa", "host:2")
    client.publish_call(run_id, "send", "77aa", 1, error="refused")
    listed = cli.json("calls", run_id)
    assert [(call["toolId"], call["state"]) for call in listed["entries"]] == [
        ("fetch[red]", "claimed"),
        ("send", "failed"),
    ]
    shown = cli("calls", run_id)
    assert "fetch[red]" in shown
    assert "calls: 2" in shown
    assert "s left" in shown
    assert "host\n1" not in shown


def test_a_timeline_of_traces(cli: CommandLine, client: RunlaneSyncClient, run_id: str) -> None:
    assert cli.json("traces", run_id) == {"traces": [], "more": False}
    assert "no traces" in cli("traces", run_id)
    client.add_trace(run_id, "load[red]", 300, ts=1000, more={"rows": 3})
    client.add_trace(run_id, "dispatch", 100, ts=900, source="coordinator")
    client.add_trace(run_id, "send", 0, ts=1300)
    listed = cli.json("traces", run_id)["traces"]
    assert [trace["phase"] for trace in listed] == ["dispatch", "load[red]", "send"]
    assert listed[1]["rows"] == 3
    shown = cli("traces", run_id)
    assert "400 ms" in shown
    assert '{"rows":3}' in shown
    bars = [line.count("█") for line in shown.splitlines()[1:4]]
    assert bars == [10, 30, 1]


def test_a_signal_reaches_who_waits_for_it(cli: CommandLine, client: RunlaneSyncClient, run_id: str) -> None:
    cli("submit", "import", "--run-id", run_id)
    answer = cli.json("signal", run_id, "approval", '{"by": "zoë"}')
    assert answer == {"signalType": "integration_event_approval", "stored": True}
    state = client.get_child(run_id, "approval")
    assert state is not None
    assert state.data == {"by": "zoë"}
    assert "wait_for('tick')" in cli("signal", run_id, "x", "@-", "--type", "tick", stdin="7")
    state = client.get_child(run_id, "tick")
    assert state is not None
    assert state.data == 7
    assert "payload" in cli.error("signal", run_id, "approval", "{by: zoë}", code=2)["message"]
    cli("cancel", run_id)
    assert cli.error("signal", run_id, "approval")["code"] == "RUN_ENDED"


def test_everything_that_is_stored_about_a_run_but_nothing_secret(
    cli: CommandLine, client: RunlaneSyncClient, run_id: str
) -> None:
    assert cli.error("inspect", run_id)["code"] == "RUN_NOT_FOUND"
    secret = f"pw-{run_id}"
    session = KeyRing({"key-1": bytes(32)}).encrypt(run_id, "main", {"password": secret})
    client.launch(run_id, "import", {"token": secret}, sessions=[session])
    client.set_child(run_id, "child[red]", {"secret": secret})
    client.claim_call(run_id, "fetch", "5e1f", "host:1", lease_ms=3_600_000)
    found = cli.json("inspect", run_id)
    assert (found["status"], found["attempt"], found["calls"]) == ("running", 1, 1)
    assert found["sessions"]["sessionCount"] == 1
    assert found["retry"]["attempts"] == 0
    assert found["instance"]["attempt"] == 1
    assert [child["eventKey"] for child in found["children"]] == ["child[red]"]
    parts = {part["what"]: part for part in found["stored"]}
    assert {"events", "calls", "children", "retry", "sessions", "instance", "traces"} <= parts.keys()
    assert all(part["bytes"] > 0 for part in parts.values())
    shown = cli("inspect", run_id)
    assert "present (1), encrypted" in shown
    assert "child[red]" in shown
    for told in (shown, json.dumps(found)):
        assert secret not in told
        assert session.ciphertext not in told
    client.cancel(run_id)
    client.finish(run_id)
    assert "evicted" in cli("inspect", run_id)


def test_submitting_again_starts_nothing(cli: CommandLine, run_id: str) -> None:
    first = cli.json("submit", "import", "--run-id", run_id)
    assert cli.json("submit", "import", "--run-id", run_id) == first
    assert len(cli.lines("events", run_id)) == 1


def test_a_run_without_an_id_gets_a_readable_one(cli: CommandLine) -> None:
    made = cli.json("submit", "import orders!")["runId"]
    assert made.startswith("import-orders-")
    assert cli.json("submit", "import orders!")["runId"] != made


def test_parameters_come_from_the_line_a_file_or_standard_input(
    cli: CommandLine, served: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "params.json"
    file.write_text('{"from": "file"}')
    runs = {
        cli.json("submit", "x", "--params", '["line"]')["runId"]: ["line"],
        cli.json("submit", "x", "--params", f"@{file}")["runId"]: {"from": "file"},
        cli.json("submit", "x", "--params", "@-", stdin='"stdin"')["runId"]: "stdin",
        cli.json("submit", "x")["runId"]: None,
    }
    dispatched = {record["runId"]: record.get("params") for record in values(served, "run-dispatch")}
    assert {run_id: dispatched[run_id] for run_id in runs} == runs


@pytest.mark.parametrize("params", ["{a: 1}", "NaN", "@/no/such/file", r'"\ud800"'], ids=ascii)
def test_parameters_that_are_no_json_are_refused_before_anything_is_sent(
    cli: CommandLine, params: str
) -> None:
    error = cli.error("submit", "x", "--params", params, code=2)
    assert "parameters" in error["message"]


@pytest.mark.parametrize(("status", "code"), [("completed", 0), ("failed", 1)])
def test_waiting_ends_with_the_run_and_like_the_run(
    cli: CommandLine, client: RunlaneSyncClient, run_id: str, status: Any, code: int
) -> None:
    with cli.following("submit", "import", "--run-id", run_id, "--wait", "--json") as waiting:
        assert next(client.events(run_id)).type == "status"
        client.set_terminal(run_id, status, error="because" if code else None)
        out, _ = waiting.communicate(timeout=60)
    answer = json.loads(out)
    assert waiting.returncode == code
    assert (answer["runId"], answer["terminal"]["status"]) == (run_id, status)
    cli("status", run_id, "--wait", code=code)


def test_waiting_in_vain_says_what_was_waited_for(cli: CommandLine, run_id: str) -> None:
    cli("submit", "import", "--run-id", run_id)
    for command in (("status", run_id), ("submit", "import", "--run-id", run_id)):
        error = cli.error(*command, "--wait", "--timeout", "5")
        assert run_id in error["message"]
        # Connecting and submitting took their part of the 5 s.
        assert re.search(r"did not end within [0-4]\.?\d* s", error["message"])
        assert "executor" in error["hint"]


def test_a_command_without_a_worker_says_so(make_settings: MakeSettings) -> None:
    settings = make_settings()
    cli = CommandLine(settings.brokers or "", settings.prefix)
    for command in (("status", "r"), ("submit", "x"), ("cancel", "r")):
        error = cli.error(*command, "--timeout", "5")
        assert re.search(r"within [0-4]\.?\d* s", error["message"])
        assert f"{settings.prefix}-run-commands" in error["message"]
        assert "/health/ready" in error["hint"]


def test_a_refusal_shows_code_message_and_advice(cli: CommandLine, run_id: str) -> None:
    error = cli.error("status", run_id)
    assert (error["code"], error["hint"]) == ("RUN_NOT_FOUND", "Check the run id; submit the run first.")
    cli("cancel", run_id)
    error = cli.error("submit", "import", "--run-id", run_id)
    assert error["code"] == "RUN_ENDED"
    assert error["details"]["terminal"]["status"] == "cancelled"
    for_people = cli.errors("submit", "import", "--run-id", run_id)
    assert "RUN_ENDED" in for_people
    assert "hint: Use a new run id for new work." in for_people


def test_cancelling_says_whether_it_ended_the_run(
    cli: CommandLine, client: RunlaneSyncClient, run_id: str
) -> None:
    cli("submit", "import", "--run-id", run_id)
    assert cli("cancel", run_id, "--reason", "wrong [day]") == f"Run {run_id} is cancelled.\n"
    assert cli("cancel", run_id) == f"Run {run_id} had ended before: it is cancelled.\n"
    assert cli.json("status", run_id)["error"] == "wrong [day]"
    other = f"{run_id}-2"
    client.complete(other)
    assert cli("cancel", other) == f"Run {other} had ended before: it is completed.\n"


def test_followed_events_come_as_they_are_written_and_end_with_the_run(
    cli: CommandLine, client: RunlaneSyncClient, run_id: str
) -> None:
    with cli.following("events", run_id, "--follow", "--json") as following:
        for number in range(1, 4):
            client.log(run_id, f"line {number}")
            event = next_json(following)
            assert (event["seq"], event["line"]) == (number, f"line {number}")
        client.fail(run_id, "because")
        assert next_json(following)["error"] == "because"
        assert following.wait(60) == 0


@pytest.mark.parametrize("command", [("events", "--follow"), ("terminals", "--follow"), ("status", "--wait")])
def test_ctrl_c_ends_a_wait_cleanly(
    cli: CommandLine, client: RunlaneSyncClient, served: Settings, run_id: str, command: tuple[str, str]
) -> None:
    client.log(run_id, "x")
    client.complete(f"{run_id}-ended")

    def has_asked() -> bool:
        asked = {"type": "terminal.get", "runId": run_id}
        return any(asked.items() <= value.items() for value in values(served, "run-commands"))

    name, option = command
    arguments = (name, option) if name == "terminals" else (name, run_id, option)
    with cli.following(*arguments, "--json") as following:
        if option == "--follow":
            next_json(following)
        else:
            wait_until(has_asked, "the waiting command asks for the run's end")
        code, errors = interrupt(following)
    assert (code, errors) == (130, "")


def test_events_of_an_unknown_run_are_an_error_that_says_so(cli: CommandLine, run_id: str) -> None:
    error = cli.error("events", run_id)
    assert run_id in error["message"]
    assert "--follow" in error["hint"]


def test_terminals_lists_and_follows_the_ends_of_runs(
    cli: CommandLine, client: RunlaneSyncClient, run_id: str
) -> None:
    client.complete(f"{run_id}-a", total_rows=1234)
    client.fail(f"{run_id}-b", "no such day")
    ends = {end["runId"]: end for end in cli.lines("terminals")}
    assert ends[f"{run_id}-a"]["totalRows"] == 1234
    failed = {end["runId"] for end in cli.lines("terminals", "--status", "failed")}
    assert f"{run_id}-b" in failed
    assert f"{run_id}-a" not in failed
    for_people = cli("terminals")
    assert "1,234" in for_people
    assert "no such day" in for_people
    with cli.following("terminals", "--follow", "--json") as following:
        seen = {next_json(following)["runId"] for _ in ends}
        client.complete(f"{run_id}-c")
        assert next_json(following)["runId"] == f"{run_id}-c"
    assert seen == set(ends)
    assert "--follow" in cli.error("terminals", "--new", code=2)["message"]


def test_people_see_what_happened_and_no_control_characters(
    cli: CommandLine, client: RunlaneSyncClient, run_id: str
) -> None:
    client.log(run_id, "\x1b[31mred\x07 [bold]not bold[/bold]")
    client.progress(run_id, "3 of 4", active_node_id="n1")
    client.complete(run_id, {"text": "\x1b[2J \x9b2J ü"}, total_rows=4, duration_ms=1500)
    shown = cli("events", run_id)
    assert "\\x1b[31mred\\x07 [bold]not bold[/bold]" in shown
    assert "3 of 4" in shown
    assert "completed, 4 rows" in shown
    for command in (("events", run_id), ("status", run_id), ("status", run_id, "--wait"), ("terminals",)):
        assert not {
            character for character in cli(*command) if ord(character) < 32 or 126 < ord(character) < 160
        } - {"\n"}
    assert "ü" in cli("status", run_id)


def test_what_is_on_the_topics_is_as_the_exported_schemas_say(
    cli: CommandLine, client: RunlaneSyncClient, served: Settings, run_id: str
) -> None:
    client.submit(run_id, "x", {"a": [1, None]})
    client.log(run_id, "x")
    client.progress(run_id, "y")
    client.set_status(run_id, "z", logs=["l"])
    client.list_events(run_id)
    client.cancel(run_id, "enough")
    cli.error("submit", "x", "--run-id", f"{run_id}-{'x' * 600}")
    schemas = {name: json.loads(content) for name, content in exported().items()}
    for topic in (
        "run-commands",
        "run-events",
        "run-terminals",
        "run-dispatch",
        "replies",
        "state-changelog",
    ):
        validator = Draft202012Validator(schemas[f"topic.{topic}.json"])
        records = values(served, topic)
        assert records
        for record in records:
            if topic != "run-commands" or len(record["runId"]) <= 512:
                validator.validate(record)


def values(settings: Settings, topic: str) -> list[Any]:
    """The decoded values on a topic, without deletions."""
    records = scan_topic(settings, settings.name(topic), settings.partitions)
    return [json.loads(record.value()) for record in records if record.value() is not None]
