"""The local broker: one per folder, found again, restarted on the same address, ended by its own id only."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streams.broker import broker_process, local_broker
from streams.broker.server_config import HOST, make_identity, read_identity
from streams.settings import Settings
from streams.torture.proxy import Link
from streams.user_errors import UserError
from tests.waiting import wait_until

_UP = """
import json, sys
from pathlib import Path
from streams.broker import local_broker
from streams.settings import Settings
info = local_broker.up(Settings(broker_dir=Path(sys.argv[1])))
print(json.dumps([info.address, info.pid, info.started_now]))
"""


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Settings]:
    """Settings of a local broker of this test's own, not started yet."""
    settings = Settings(brokers=None, broker_dir=tmp_path / "broker")
    yield settings
    local_broker.remove(settings)


def _topics(address: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": address}).list_topics(timeout=10).topics)


def test_it_starts_once_and_keeps_address_and_data_over_crash_and_stop(local: Settings) -> None:
    first = local_broker.up(local)
    assert first.started_now
    again = local_broker.up(local)
    assert (again.pid, again.address, again.started_now) == (first.pid, first.address, False)
    assert local_broker.resolve_brokers(local) == first.address
    status = local_broker.status(local)
    assert status.running
    assert status.ready
    assert any("Kafka" in line for line in local_broker.logs(local, 1000))

    admin = AdminClient({"bootstrap.servers": first.address})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(30)

    assert local_broker.kill(local)
    assert not psutil.pid_exists(first.pid)
    assert not local_broker.status(local).running
    after_crash = local_broker.up(local)
    assert after_crash.address == first.address
    assert after_crash.pid != first.pid
    assert "kept" in _topics(after_crash.address)

    assert local_broker.down(local)
    assert not psutil.pid_exists(after_crash.pid)
    assert not local_broker.down(local)
    assert local_broker.up(local).address == first.address
    assert "kept" in _topics(first.address)


async def test_a_further_listener_sends_its_clients_through_what_stands_in_front(local: Settings) -> None:
    broker = await asyncio.to_thread(local_broker.up, local, further_listeners=1)
    (listener,) = broker.further
    link = Link(listener.advertised_port, listener.port, random.Random(1))
    await link.start()
    try:
        admin = AdminClient({"bootstrap.servers": link.address})
        found = await asyncio.to_thread(admin.list_topics, timeout=10)
        assert [(node.host, node.port) for node in found.brokers.values()] == [(HOST, link.port)]
        assert link.requests > 0
    finally:
        await link.close()
    assert (await asyncio.to_thread(local_broker.up, local)).further == broker.further


def test_a_frozen_broker_goes_on_where_it_was(local: Settings) -> None:
    broker = local_broker.up(local)
    assert local_broker.freeze(local)
    process = psutil.Process(broker.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, "it stands still")
    local_broker.thaw(local)
    assert local_broker.status(local).ready
    assert local_broker.kill(local)
    assert not local_broker.freeze(local)


def test_it_survives_the_process_that_started_it_and_two_starts_at_once_make_one(local: Settings) -> None:
    command = [sys.executable, "-c", _UP, str(local.broker_dir)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(starter.communicate(timeout=180)[0]) for starter in starters]
    (address, pid, _), (other_address, other_pid, _) = answers
    assert (address, pid) == (other_address, other_pid)
    assert sorted(started for _, _, started in answers) == [False, True]
    assert local_broker.status(local).pid == pid
    assert local_broker.status(local).ready


@pytest.mark.parametrize("same_start_time", [True, False])
def test_another_process_that_has_the_noted_id_is_left_alone(local: Settings, same_start_time: bool) -> None:
    local.broker_dir.mkdir(parents=True)
    make_identity(local.broker_dir)
    bystander = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        created = psutil.Process(bystander.pid).create_time() - (0 if same_start_time else 3600)
        note = {"pid": bystander.pid, "createTime": created}
        broker_process.process_file(local.broker_dir).write_text(json.dumps(note))
        assert not local_broker.status(local).running
        assert not local_broker.kill(local)
        assert not local_broker.down(local)
        assert bystander.poll() is None
        with pytest.raises(UserError, match="runlane broker up"):
            local_broker.resolve_brokers(local)
    finally:
        bystander.communicate(b"\n")


def test_given_brokers_are_used_without_a_local_one(local: Settings) -> None:
    given = Settings(brokers="kafka.example:9092", broker_dir=local.broker_dir)
    assert local_broker.resolve_brokers(given) == "kafka.example:9092"
    with pytest.raises(UserError, match="RUNLANE_BROKERS"):
        local_broker.resolve_brokers(local)


def test_a_taken_port_is_named_with_who_took_it(local: Settings) -> None:
    local.broker_dir.mkdir(parents=True)
    identity = make_identity(local.broker_dir)
    with socket.create_server((HOST, identity.port)), pytest.raises(UserError) as refused:
        local_broker.up(local)
    assert f"Port {identity.port}" in refused.value.message
    assert str(os.getpid()) in refused.value.message
    assert read_identity(local.broker_dir) == identity


def test_a_broker_that_dies_at_its_start_shows_the_end_of_its_log(local: Settings) -> None:
    local.broker_dir.mkdir(parents=True)
    # Taken for prepared, its data folder lacks what the broker needs.
    (local.broker_dir / "formatted").touch()
    with pytest.raises(UserError, match="died while it started") as failed:
        local_broker.up(local)
    assert "meta.properties" in failed.value.message


def test_jars_that_cannot_be_downloaded_give_a_clear_message(
    local: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configuration = tmp_path / "jgo.conf"
    configuration.write_text("[repositories]\ncentral = http://127.0.0.1:9/nothing-here\n")
    monkeypatch.setenv("JGO_CONFIG_FILE", str(configuration))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "repository"))
    nothing_yet = Settings(broker_dir=local.broker_dir, broker_jars_dir=tmp_path / "jars")
    with pytest.raises(UserError, match="could not be downloaded") as failed:
        local_broker.up(nothing_yet)
    assert "RUNLANE_BROKERS" in (failed.value.hint or "")
    assert not local_broker.status(nothing_yet).running
