"""Wire contract, sections 5 and 8: a database session in the clear gets no further than the command topic.

A secret is sent in every way that goes wrong, and in none that is right. Then everything that a worker writes and
shows is searched for it.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest

from tests.contract.bare_client import BareClient, Sent, command, new_id
from tests.contract.topic_reader import TopicReader
from tests.sealed_sessions import sealed
from tests.worker_process import WorkerProcess

SECRET = f"pw-{new_id()}"
URL = f"postgres://app:{SECRET}@db.internal:5432/main"
FORMS = (SECRET.encode(), b64encode(SECRET.encode()).rstrip(b"=")[:-2])
"""In the clear, and what a base64 of it has in common wherever it begins at a group's start."""

OUTPUTS = (
    "run-events",
    "run-terminals",
    "run-dispatch",
    "replies",
    "dead-letters",
    "state-changelog",
)

OPEN_SESSIONS: list[Any] = [
    URL,
    [URL],
    {"main": URL},
    [{"name": "main", "url": URL}],
    [{**sealed(), "url": URL}],
    [{**sealed(), URL: 1}],
    [{**sealed(), "name": URL}],
    [{**sealed(), "keyId": SECRET + "@"}],
    [{**sealed(), "algorithm": URL}],
    [{**sealed(), "nonce": URL}],
    [{**sealed(), "ciphertext": URL}],
    [{**sealed(), "ciphertext": b64encode(SECRET.encode() + b"= and more").decode()}],
    [sealed(), {"password": SECRET}],
]


def plant(client: BareClient) -> list[Sent]:
    """Send the secret in all wrong ways; returns those that become dead letters."""
    for sessions in OPEN_SESSIONS:
        for type_ in ("sessions.put", "launch.put", "run.submit"):
            run_id, fields = new_id(), {"name": "x", "params": 1, "sessions": sessions}
            asked = client.ask(type_, run_id, **fields)
            assert client.reply(asked)["error"]["code"] == "SESSION_NOT_ENCRYPTED"
            # Sent again, it gets the remembered answer.
            again = client.refusal(type_, run_id, command_id=asked.command_id, **fields)
            assert again["code"] == "SESSION_NOT_ENCRYPTED"
    # In the wrong partition it is forwarded, and refused there.
    run_id = new_id()
    elsewhere = (client.partition_of(run_id) + 1) % client.partitions
    asked = client.ask("sessions.put", run_id, partition=elsewhere, sessions=[{"url": URL}])
    assert client.reply(asked)["error"]["code"] == "SESSION_NOT_ENCRYPTED"

    dead: list[Sent] = []
    run_id = new_id()
    key = run_id.encode()
    put = command("sessions.put", run_id, new_id(), sessions=[{"url": URL}])
    dead.append(client.send(put, key=b"another"))
    dead.append(client.send(put, key=b"\xff"))
    dead.append(client.send(put, key=None))
    dead.append(client.send(put[:-4], key=key))
    dead.append(client.send(b"\xef\xbb\xbf" + put, key=key))
    dead.append(client.send(repr(json.loads(put)).encode(), key=key))
    dead.append(client.send(put, key=key, headers=[("reply-partition", b"99"), ("correlation-id", b"x")]))
    dead.append(client.send(command("sessions.store", run_id, new_id(), sessions=[{"url": URL}]), key=key))
    dead.append(client.send(command("sessions.put", run_id, "", sessions=[{"url": URL}]), key=key))
    dead.append(client.send(command("sessions.put", run_id, "", session={"password": SECRET}), key=key))
    dead.append(client.send(command("launch.put", run_id, "", db={"dsn": f"password={SECRET}"}), key=key))
    large = command("sessions.put", run_id, new_id(), sessions=[{"url": URL * 30_000}])
    dead.append(client.send(large, key=key))
    return dead


@pytest.fixture(scope="module")
def planted(client: BareClient) -> list[Sent]:
    """The dead letters' commands, when everything has been answered."""
    dead = plant(client)
    for sent in dead:
        client.dead_letter(sent)
    return dead


def test_a_dead_letter_has_no_open_sessions(client: BareClient, planted: list[Sent]) -> None:
    for sent in planted:
        letter = client.dead_letter(sent)
        headers = dict(letter.headers)
        assert letter.value is None
        assert headers["runlane.error.valueWithheld"] == b"sessions"
        assert int(headers["runlane.error.valueBytes"] or b"") > 0
        # The record itself is where the headers say.
        place = (headers["runlane.error.partition"], headers["runlane.error.offset"])
        assert place == (b"%d" % sent.partition, b"%d" % sent.offset)


def test_the_search_finds_the_secret_where_it_was_sent(client: BareClient, planted: list[Sent]) -> None:
    client.reader.catch_up("run-commands")
    found = [
        record for record in client.reader.records("run-commands") if SECRET.encode() in (record.value or b"")
    ]
    assert len(found) > len(OPEN_SESSIONS) + len(planted)


def test_no_topic_that_a_worker_writes_has_the_secret(
    client: BareClient, broker: str, planted: list[Sent]
) -> None:
    reader = TopicReader(broker, {name: client.topic(name) for name in OUTPUTS})
    try:
        for name in OUTPUTS:
            reader.catch_up(name)
            records = reader.records(name)
            assert records
            for record in records:
                parts = [record.key or b"", record.value or b""]
                if name == "dead-letters":
                    parts += [value or b"" for _, value in record.headers]
                for part in parts:
                    assert not any(form in part for form in FORMS), (name, record.partition, record.offset)
    finally:
        reader.close()


def test_neither_the_log_nor_a_page_of_the_worker_has_the_secret(
    worker: WorkerProcess, planted: list[Sent]
) -> None:
    shown = worker.log_file.read_bytes()
    for page in ("/metrics", "/health", "/health/live", "/health/ready", "/"):
        shown += worker.get(page)[1].encode()
    assert b"runlane" in shown
    assert not any(form in shown for form in FORMS)


def test_the_local_store_does_not_have_it_either(worker: WorkerProcess, planted: list[Sent]) -> None:
    files = [path for path in worker.data_dir.rglob("*") if path.is_file()]
    assert files
    for path in files:
        data = path.read_bytes()
        assert not any(form in data for form in FORMS), path


def test_an_encrypted_session_is_let_through(client: BareClient, run_id: str, planted: list[Sent]) -> None:
    client.result("sessions.put", run_id, sessions=[sealed()])
    assert client.result("sessions.get", run_id)["sessions"] == [sealed()]
