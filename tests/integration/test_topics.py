"""Topics on a real broker: made once, compared, never changed, refused when their counts differ."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from schemas.topics import REPLIES, RUN_COMMANDS, RUN_EVENTS, STATE_CHANGELOG, TOPICS
from streams import topic_admin
from streams.cli.main import main
from streams.settings import Settings
from streams.topic_admin import Drift, TopicLayoutError
from streams.user_errors import UserError
from tests.conftest import MakeSettings
from tests.waiting import wait_until


def _admin(settings: Settings) -> AdminClient:
    return AdminClient({"bootstrap.servers": settings.brokers})


def _set(settings: Settings, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = _admin(settings)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)

    def seen() -> bool:
        (answer,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return bool(answer.result(30)[name].value == value)

    wait_until(seen, f"{name} of {topic} shows as {value}")


def _run(capsys: pytest.CaptureFixture[str], settings: Settings, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--brokers", str(settings.brokers), "--prefix", settings.prefix])
    captured = capsys.readouterr()
    return int(exit_.value.code or 0), captured.out, captured.err


def test_apply_makes_every_topic_as_described_and_the_second_time_nothing(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(apply_topics=False, partitions=3)
    names = {settings.name(name) for name in TOPICS}
    first = topic_admin.apply(settings)
    assert set(first.created) == names
    assert not first.existing
    assert not first.drift
    second = topic_admin.apply(settings)
    assert not second.created
    assert set(second.existing) == names
    assert not second.drift
    assert topic_admin.require_equal_partitions(settings) == 3


def test_drift_of_settings_and_partitions_is_reported_and_left_as_it_is(make_settings: MakeSettings) -> None:
    settings = make_settings(apply_topics=False)
    events, replies = settings.name(RUN_EVENTS.name), settings.name(REPLIES.name)
    admin = _admin(settings)
    admin.create_topics([NewTopic(replies, 2, 1)])[replies].result(30)
    topic_admin.apply(settings)
    _set(settings, events, "retention.ms", "1000")
    _set(settings, events, "retention.bytes", "4096")
    as_topic_defaults = {"max.message.bytes", "retention.ms", "segment.ms"}

    for report in (topic_admin.check(settings), topic_admin.apply(settings), topic_admin.check(settings)):
        assert Drift(replies, "partitions", None, "4", "2") in report.drift
        assert Drift(events, "setting", "retention.ms", "604800000", "1000") in report.drift
        assert Drift(events, "setting", "retention.bytes", "the broker's default", "4096") in report.drift
        assert {drift.topic for drift in report.drift} == {replies, events}
        assert {drift.setting for drift in report.drift if drift.topic == replies} >= as_topic_defaults
        assert not report.created


def test_workers_refuse_topics_with_unequal_partition_counts(settings: Settings) -> None:
    changelog = settings.name(STATE_CHANGELOG.name)
    admin = _admin(settings)
    admin.create_partitions([NewPartitions(changelog, 6)])[changelog].result(30)
    wait_until(
        lambda: len(admin.list_topics(timeout=30).topics[changelog].partitions) == 6, "six partitions show"
    )
    with pytest.raises(TopicLayoutError) as refused:
        topic_admin.require_equal_partitions(settings)
    assert f"6: {changelog}" in refused.value.message
    assert f"{settings.name(RUN_COMMANDS.name)}" in refused.value.message.split("6:")[0]
    assert "runlane topics apply" in (refused.value.hint or "")


def test_workers_refuse_missing_topics_and_another_count_than_their_setting(
    make_settings: MakeSettings,
) -> None:
    bare = make_settings(apply_topics=False)
    with pytest.raises(TopicLayoutError, match=f"missing.*{bare.name(RUN_COMMANDS.name)}"):
        topic_admin.require_equal_partitions(bare)
    two = make_settings(partitions=2)
    four = make_settings(apply_topics=False, prefix=two.prefix, partitions=4)
    with pytest.raises(TopicLayoutError, match="RUNLANE_PARTITIONS=2"):
        topic_admin.require_equal_partitions(four)


def test_a_broker_that_never_answers_is_named(make_settings: MakeSettings) -> None:
    nowhere = Settings(brokers="127.0.0.1:9", prefix="nowhere")
    with pytest.raises(UserError, match=r"No Kafka broker answered at 127\.0\.0\.1:9"):
        topic_admin.check(nowhere, patience_s=0.5)


def test_the_command_line_reports_for_people_and_machines(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(apply_topics=False)
    events = settings.name(RUN_EVENTS.name)

    code, out, err = _run(capsys, settings, "topics", "check", "--json")
    assert code == 1
    assert {drift["what"] for drift in json.loads(out)["drift"]} == {"missing"}
    assert "runlane topics apply" in err

    code, out, _ = _run(capsys, settings, "topics", "apply")
    assert code == 0
    assert out.count("created") == len(TOPICS)

    _set(settings, events, "retention.ms", "1000")
    code, out, _ = _run(capsys, settings, "topics", "check")
    assert code == 1
    assert "retention.ms is 1000, not 604800000" in out

    code, out, _ = _run(capsys, settings, "--json", "topics", "list")
    assert code == 0
    assert {topic["topic"] for topic in json.loads(out)} == {settings.name(name) for name in TOPICS}
