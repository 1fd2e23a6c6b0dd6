"""`runlane verify` where there is little to verify, or nothing that can be."""

from __future__ import annotations

from streams.settings import Settings
from tests.conftest import MakeSettings
from tests.integration.command_line import CommandLine
from tests.worker_process import free_port


def test_an_empty_deployment_is_clean_and_said_to_be_empty(settings: Settings) -> None:
    verify = CommandLine(str(settings.brokers), settings.prefix)
    report = verify.json("verify")
    assert report["clean"]
    assert sum(report["commands"].values()) == 0
    assert "nothing to verify yet" in verify("verify")
    unknown = verify.error("verify", "--run", "nobody's", code=2)
    assert "nobody's" in unknown["message"]


def test_a_wrong_prefix_is_told_with_those_that_exist(settings: Settings) -> None:
    verify = CommandLine(str(settings.brokers), f"{settings.prefix}-not")
    error = verify.error("verify", code=2)
    assert f"{settings.prefix}-not" in error["message"]
    assert repr(settings.prefix) in error["hint"]


def test_another_number_of_partitions_is_told(make_settings: MakeSettings) -> None:
    settings = make_settings(partitions=2)
    error = CommandLine(str(settings.brokers), settings.prefix).error("verify", code=2)
    assert error["hint"] == "set RUNLANE_PARTITIONS=2"


def test_a_broker_that_is_away_is_no_violation() -> None:
    verify = CommandLine(f"127.0.0.1:{free_port()}", "any", RUNLANE_COMMAND_TIMEOUT_S="1")
    assert "No Kafka broker answered" in verify.error("verify", code=2)["message"]


def test_wrong_usage_is_no_violation(settings: Settings) -> None:
    verify = CommandLine(str(settings.brokers), settings.prefix)
    assert "--run is empty" in verify.error("verify", "--run", "", code=2)["message"]
    assert "--limit" in verify.errors("verify", "--limit", "-1", code=2)
