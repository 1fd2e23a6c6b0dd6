"""The topic descriptions hold what the design and the wire contract say of topics."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import schemas
from schemas import topics
from schemas.topics import COMMAND_TOPICS, EXCLUSIVE_TOPICS, LANE_TOPICS, OUTPUT_TOPICS, TOPICS, TopicSpec
from streams.settings import Settings
from streams.topic_admin import topic_settings

MIB = 1024 * 1024

# Topics are made from the first version on, so that later ones need no migration; their schemas come then.
_LATER = {f"Any{domain}Command" for domain in ("Rate", "Pool", "Queue", "Hook", "Stream")} | {"QueueDelivery"}


def test_every_topic_of_the_design_is_described_and_has_a_constant() -> None:
    assert {spec.name for spec in COMMAND_TOPICS} == {
        f"{domain}-commands" for domain in ("run", "rate", "pool", "queue", "hook", "stream")
    }
    assert {spec.name for spec in OUTPUT_TOPICS} == {
        "run-events",
        "run-terminals",
        "run-dispatch",
        "queue-deliveries",
        "replies",
        "dead-letters",
        "state-changelog",
    }
    constants = {value.name for value in vars(topics).values() if isinstance(value, TopicSpec)}
    assert constants == set(TOPICS)
    for name, spec in TOPICS.items():
        assert getattr(topics, name.upper().replace("-", "_")) is spec


def test_all_topics_share_one_partition_count() -> None:
    assert list(LANE_TOPICS) == list(TOPICS.values())


@pytest.mark.parametrize("spec", COMMAND_TOPICS, ids=lambda spec: spec.name)
def test_commands_are_timed_by_the_broker_and_up_to_8_mib(spec: TopicSpec) -> None:
    assert spec.settings["message.timestamp.type"] == "LogAppendTime"
    assert spec.settings["cleanup.policy"] == "delete"
    assert spec.max_message_bytes == 8 * MIB
    assert spec.id_field
    assert not spec.exclusive


@pytest.mark.parametrize("spec", OUTPUT_TOPICS, ids=lambda spec: spec.name)
def test_outputs_are_up_to_2_mib_and_dead_letters_up_to_9(spec: TopicSpec) -> None:
    assert spec.max_message_bytes == (9 if spec is topics.DEAD_LETTERS else 2) * MIB
    assert spec.id_field is None


def test_retention_is_as_designed() -> None:
    day = 24 * 3600 * 1000
    kept = {
        name: int(spec.settings["retention.ms"])
        for name, spec in TOPICS.items()
        if spec.settings["cleanup.policy"] == "delete" and spec.family != "commands"
    }
    assert kept["run-events"] == 7 * day
    assert kept["dead-letters"] == 30 * day
    assert kept["replies"] == day // 24
    compacted = {name for name, spec in TOPICS.items() if spec.settings["cleanup.policy"] == "compact"}
    assert compacted == {"run-terminals", "state-changelog"}
    assert topics.STATE_CHANGELOG.delete_retention_ms == day


def test_what_only_one_lane_writes_is_what_a_lane_checks_when_it_opens() -> None:
    names = {spec.name for spec in EXCLUSIVE_TOPICS}
    assert names >= {"state-changelog", "run-events", "run-terminals", "run-dispatch"}
    assert "replies" not in names


def test_value_schemas_exist() -> None:
    defined = {
        name
        for module in pkgutil.iter_modules(schemas.__path__)
        for name in vars(importlib.import_module(f"schemas.{module.name}"))
    }
    named = {value for spec in TOPICS.values() for value in spec.values}
    assert named - _LATER - {"any bytes"} <= defined


@pytest.mark.parametrize(("replicas", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (5, "2")])
def test_writes_never_need_more_replicas_than_may_be_left(replicas: int, in_sync: str) -> None:
    settings = Settings(replication_factor=replicas)
    assert topic_settings(topics.RUN_EVENTS, settings)["min.insync.replicas"] == in_sync
