"""Retention deletes commands that no worker has processed: the lane says which, and goes on with the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from schemas import dead_letters
from schemas.errors import ErrorCode
from streams.settings import Settings
from tests.integration.lane_rig import COMMANDS, Rig
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess


def test_expired_commands_are_reported_by_their_range_and_the_rest_is_applied(
    make_settings: Any, tmp_path: Path
) -> None:
    settings: Settings = make_settings(partitions=1)
    rig = Rig(settings)
    run_id = rig.run_id()
    worker = WorkerProcess(str(settings.brokers), settings.prefix, tmp_path, partitions=1)
    rig.log(run_id, 5)
    with worker:
        worker.start()
        wait_until(lambda: len(rig.events()) == 5, "the first commands are applied")
        assert worker.terminate() == 0

        rig.log(run_id, 20)
        _delete_before(settings, 15)
        expired = rig.sent[5:15]
        rig.sent = rig.sent[:5] + rig.sent[15:]
        worker.start()
        wait_until(lambda: len(rig.events()) == 15, "the commands that are left are applied")
        rig.log(run_id)
        wait_until(lambda: len(rig.events()) == 16, "new commands are applied")
        worker.wait_ready()

    rig.assert_exactly_once()
    assert not set(expired) & {event["commandId"] for event in rig.events()}
    (letter,) = rig.read("dead-letters")
    headers = dict(letter.headers())
    assert headers[dead_letters.CODE] == ErrorCode.COMMANDS_EXPIRED.encode()
    assert b"5..14" in headers[dead_letters.MESSAGE]
    assert (letter.key(), letter.value(), letter.partition()) == (None, None, 0)


def test_a_new_lane_whose_log_begins_late_reports_what_is_gone(make_settings: Any, tmp_path: Path) -> None:
    settings: Settings = make_settings(partitions=1)
    rig = Rig(settings)
    rig.log(rig.run_id(), 4)
    _delete_before(settings, 3)
    rig.sent = rig.sent[3:]
    with WorkerProcess(str(settings.brokers), settings.prefix, tmp_path, partitions=1) as worker:
        worker.start()
        wait_until(lambda: len(rig.events()) == 1, "the command that is left is applied")
    (letter,) = rig.read("dead-letters")
    assert b"0..2" in dict(letter.headers())[dead_letters.MESSAGE]
    rig.assert_exactly_once()


def _delete_before(settings: Settings, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": settings.brokers})
    at = TopicPartition(settings.name(COMMANDS), 0, offset)
    for future in admin.delete_records([at]).values():
        future.result()
