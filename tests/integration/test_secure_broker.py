"""Brokers that want TLS and a name: everything of runlane that talks to Kafka gets in, or says why not."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streams import topic_admin
from streams.child_process import WorkerChild, free_port
from streams.client import RunlaneClient
from streams.executor import Executor, RunContext
from streams.faust_credentials import faust_credentials
from streams.messaging.kafka_security import security_config
from streams.settings import Settings
from streams.user_errors import UserError
from streams.verify.kafka_source import KafkaSource
from tests.integration.command_line import CommandLine
from tests.integration.secure_broker import PASSWORD, USER, SecureBroker, secure_broker

PATIENCE_S = 60


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with (
        pytest.MonkeyPatch.context() as patch,
        secure_broker(tmp_path_factory.mktemp("secured"), patch) as broker,
    ):
        yield broker


def scram(broker: SecureBroker, **more: Any) -> dict[str, Any]:
    """Settings of a client with a name and a password."""
    return {
        "brokers": broker.scram_address,
        "security_protocol": "SASL_SSL",
        "ssl_ca_file": broker.ca_file,
        "sasl_username": USER,
        "sasl_password": PASSWORD,
        **more,
    }


def certificate(broker: SecureBroker, **more: Any) -> dict[str, Any]:
    """Settings of a client with a certificate."""
    return {
        "brokers": broker.certificate_address,
        "security_protocol": "SSL",
        "ssl_ca_file": broker.ca_file,
        "ssl_certificate_file": broker.certificate_file,
        "ssl_key_file": broker.key_file,
        **more,
    }


@pytest.mark.parametrize("way", [scram, certificate])
async def test_a_run_from_its_submit_to_its_end(way: Any, secured: SecureBroker, tmp_path: Path) -> None:
    prefix = f"s{uuid.uuid4().hex[:8]}"
    settings = Settings(
        **way(secured, prefix=prefix, data_dir=tmp_path / "worker", web_port=free_port(), partitions=2)
    )
    await asyncio.to_thread(topic_admin.apply, settings)
    app = Executor()

    @app.run("greet")
    async def greet(context: RunContext) -> str:
        await context.log("in")
        return "hello"

    with WorkerChild(tmp_path, settings) as worker:
        await asyncio.to_thread(lambda: worker.start().wait_ready())
        async with RunlaneClient(settings) as client, app.runner(settings):
            await client.submit("r1", "greet")
            end = await client.wait_terminal("r1", timeout=PATIENCE_S)
            assert (end.status, end.result) == ("completed", "hello")
        source = KafkaSource(settings, 2)
        assert sum(source.extent("run-events", partition) for partition in range(2)) > 0
        source.close()


def test_a_wrong_password_is_named(secured: SecureBroker) -> None:
    variables = {
        "RUNLANE_SECURITY_PROTOCOL": "SASL_SSL",
        "RUNLANE_SSL_CA_FILE": str(secured.ca_file),
        "RUNLANE_SASL_USERNAME": USER,
        "RUNLANE_SASL_PASSWORD": "wrong-but-still-secret",
    }
    cli = CommandLine(secured.scram_address, "s", **variables)
    refusal = cli.errors("topics", "check")
    assert "RUNLANE_SASL_PASSWORD" in refusal
    assert "does not take this client" in refusal
    assert "wrong-but-still-secret" not in refusal + cli("settings") + cli("settings", "--json")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"sasl_username": "me"}, "RUNLANE_SASL_USERNAME"),
        ({"security_protocol": "SASL_SSL", "sasl_username": "me"}, "RUNLANE_SASL_PASSWORD"),
        ({"security_protocol": "SSL", "ssl_key_file": Path(__file__)}, "RUNLANE_SSL_CERTIFICATE_FILE"),
        ({"security_protocol": "SSL", "brokers": None}, "RUNLANE_BROKERS"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_ca_file": Path(__file__)}, "RUNLANE_SSL_CA_FILE"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(given: dict[str, Any], named: str) -> None:
    settings = Settings(**{"brokers": "kafka:9092", **given})
    for ask in (security_config, faust_credentials):
        with pytest.raises(UserError) as refused:
            ask(settings)
        assert named in f"{refused.value.message} {refused.value.hint}"
