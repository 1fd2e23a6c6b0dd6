"""Every setting of runlane, in one place.

A setting comes, in this order of precedence, from a command-line flag, the environment (`RUNLANE_<NAME>`),
a file (`runlane.toml` in the working directory, or the one that `RUNLANE_CONFIG` names), or its default.
`runlane settings` prints this list with the values in force.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from pydantic import Field, FilePath, SecretStr, StringConstraints
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]*$", max_length=100)]

MIB = 1024 * 1024


def _default_data_dir() -> Path:
    return Path(platformdirs.user_data_dir("runlane")) / "worker"


class Settings(BaseSettings):
    """Settings of workers, executors, clients and tools; see the module's docstring for precedence."""

    model_config = SettingsConfigDict(env_prefix="RUNLANE_", extra="forbid", frozen=True)

    brokers: str | None = Field(
        None,
        description="Kafka bootstrap servers, host:port,... Unset: the local broker of `runlane broker up`.",
    )
    prefix: Prefix = Field(
        "", description="Prefix of topic names, the consumer group and transactional ids (`<prefix>-<name>`)."
    )
    partitions: int = Field(
        4,
        ge=1,
        le=1000,
        description="Partitions of every command topic; part of the layout, not a tuning knob.",
    )
    replication_factor: int = Field(
        1, ge=1, description="Replication factor of topics made by `topics apply`."
    )
    data_dir: Path = Field(
        default_factory=_default_data_dir,
        description="Folder of one worker's local state (a cache). Two workers never share one.",
    )
    web_host: str = Field("127.0.0.1", description="Address of the worker's health and metrics server.")
    web_port: int = Field(6066, ge=0, le=65535, description="Port of the worker's health and metrics server.")
    client_id: str = Field(
        default_factory=lambda: f"runlane-{socket.gethostname()}",
        description="Kafka client id, for broker logs; workers add where they run.",
    )

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How all clients reach the brokers; for the local broker PLAINTEXT."
    )
    ssl_ca_file: FilePath | None = Field(
        None,
        description="PEM file of the authorities that signed the brokers' certificates; unset: the system's.",
    )
    ssl_certificate_file: FilePath | None = Field(
        None, description="PEM file of this client's certificate, where brokers ask for one."
    )
    ssl_key_file: FilePath | None = Field(None, description="PEM file of that certificate's private key.")
    ssl_key_password: SecretStr | None = Field(None, description="Password of that key.")
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = Field(
        "SCRAM-SHA-512", description="How a client proves with SASL who it is."
    )
    sasl_username: str | None = Field(None, min_length=1, description="The client's name, with SASL.")
    sasl_password: SecretStr | None = Field(None, description="The client's password, with SASL.")

    max_batch_commands: int = Field(4000, ge=1, description="Most commands in one transaction of a lane.")
    max_batch_bytes: int = Field(
        4 * MIB, ge=1, description="Most bytes of commands in one transaction of a lane."
    )
    max_command_bytes: int = Field(MIB, ge=1024, description="Largest value of one command, uncompressed.")
    max_concurrent_commits: int = Field(4, ge=1, description="Transactions that one worker commits at once.")
    max_pending_commands: int = Field(
        8000, ge=1, description="Fetched commands that wait per lane before fetching pauses."
    )
    repeat_window_commands: int = Field(
        1000, ge=1, description="A command id is remembered until this many newer ones came for its key ..."
    )
    repeat_window_ms: int = Field(
        24 * 3600 * 1000, ge=1000, description="... or until this much time passed, whichever is first."
    )
    fault_halt_share: float = Field(
        0.5,
        gt=0,
        le=1,
        description="A lane halts when more than this share of its commands hit internal errors.",
    )
    fault_halt_minimum: int = Field(
        50,
        ge=1,
        description="Internal errors, among the last 1,000 commands, before that share is looked at.",
    )

    session_timeout_ms: int = Field(
        6000, ge=1000, le=80_000, description="Group session time-out of workers."
    )
    heartbeat_interval_ms: int = Field(1000, ge=100, description="Group heartbeat interval of workers.")
    fetch_wait_ms: int = Field(100, ge=1, le=5000, description="How long the broker may hold an empty fetch.")
    transaction_timeout_ms: int = Field(
        60000, ge=5000, description="Kafka transaction time-out of a lane's producers."
    )
    shutdown_deadline_s: float = Field(
        9.0, gt=0, description="After SIGTERM a worker that cannot hand over in this time exits anyway."
    )
    stall_alarm_s: float = Field(
        30.0,
        gt=0,
        description="A partition that stands still this long while its end moves on raises an alarm.",
    )

    rate_metrics_buckets: int = Field(
        100,
        ge=0,
        le=10_000,
        description="Rate buckets with metrics of their own, the first of a worker; the rest is in `other`.",
    )

    command_timeout_s: float = Field(
        30.0,
        gt=0,
        description="How long a client waits for the answer to a command, unless a call says else.",
    )
    executor_group: str = Field(
        "executors",
        min_length=1,
        description="Consumer group of executors; executors of one group share the runs.",
    )
    executor_concurrency: int = Field(10, ge=1, description="Runs that one executor executes at once.")

    object_store: str | None = Field(
        None,
        # No user and no password: the settings are shown.
        pattern=r"^(file:///|s3://)[^@]*$",
        description="Where clients put large launch parameters: file:///folder or s3://bucket/prefix.",
    )

    block_cache_mb: int = Field(64, ge=1, description="RocksDB block cache of the whole worker, in MiB.")
    write_buffer_mb: int = Field(64, ge=1, description="RocksDB write buffers of the whole worker, in MiB.")

    broker_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("runlane")) / "broker",
        description="Folder of the local broker: its data, log, address and process file.",
    )
    broker_jars_dir: Path = Field(
        default_factory=lambda: Path(platformdirs.user_cache_dir("runlane")) / "jars",
        description="Folder of the local broker's downloaded jars; all local brokers may share it.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="debug, info, warning or error."
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = Path(os.environ.get("RUNLANE_CONFIG", "runlane.toml"))
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=file)

    def name(self, base: str) -> str:
        """The prefixed form of a topic, group or transactional id (`lanes` -> `<prefix>-lanes`)."""
        return f"{self.prefix}-{base}" if self.prefix else base
