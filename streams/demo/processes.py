"""The worker and the executor of the demo, as real processes; ended by their ids."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from streams.settings import Settings
from streams.user_errors import UserError

_READY_PATIENCE_S = 120.0
_END_PATIENCE_S = 15.0
_POLL_S = 0.05
_TAIL_LINES = 15


class DemoProcess:
    """One `runlane ...` process with a log file of its own, through all its restarts."""

    def __init__(self, name: str, arguments: list[str], folder: Path, settings: Settings) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._arguments = [sys.executable, "-m", "streams.cli", *arguments]
        self._environment = {
            **os.environ,
            "RUNLANE_BROKERS": settings.brokers or "",
            "RUNLANE_PREFIX": settings.prefix,
            "RUNLANE_PARTITIONS": str(settings.partitions),
            "RUNLANE_DATA_DIR": str(settings.data_dir),
            "RUNLANE_WEB_HOST": settings.web_host,
            "RUNLANE_WEB_PORT": str(settings.web_port),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; `wait_ready` waits until it can be used."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._arguments,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the demo, which then ends its processes itself.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        return self._running().pid

    def require_alive(self) -> None:
        """Raises `UserError`, with the end of its log, when it has ended by itself."""
        code = self._running().poll()
        if code is not None:
            raise UserError(f"The {self.name} ended with code {code}. The end of its log:\n{self.tail()}")

    def kill(self) -> None:
        """kill -9, as a crash would."""
        self._running().send_signal(signal.SIGKILL)
        self._running().wait(_END_PATIENCE_S)

    def ask_to_stop(self) -> None:
        """SIGTERM; nothing when it was never started or has ended."""
        if self._process is not None:
            self._process.terminate()

    def wait_ended(self) -> None:
        """Wait for the end after `ask_to_stop`; one that does not end is killed."""
        if self._process is None:
            return
        try:
            self._process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def is_ready(self) -> bool:
        """Whether it can do its work."""
        raise NotImplementedError

    def wait_ready(self) -> None:
        """Wait until it can do its work. Raises `UserError` when it ends, or takes too long."""
        deadline = time.monotonic() + _READY_PATIENCE_S
        while not self.is_ready():
            self.require_alive()
            if time.monotonic() > deadline:
                raise UserError(
                    f"The {self.name} is not ready after {_READY_PATIENCE_S:.0f} s. The end of its log:\n"
                    f"{self.tail()}"
                )
            time.sleep(_POLL_S)

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"the {self.name} was not started")
        return self._process


class DemoWorker(DemoProcess):
    """`runlane worker`."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self._page = f"http://{settings.web_host}:{settings.web_port}/health/ready"
        super().__init__("worker", ["worker"], folder, settings)

    def is_ready(self) -> bool:
        """Whether every lane serves."""
        return self.health()[0]

    def health(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether it is ready, and its lanes; (False, []) when it does not answer."""
        try:
            with urllib.request.urlopen(self._page, timeout=2) as answer:
                lanes = orjson.loads(answer.read())["lanes"]
                # Ready with none owned: right after its start it has not joined the group yet.
                return bool(lanes), lanes
        except urllib.error.HTTPError as error:
            return False, orjson.loads(error.read()).get("lanes", [])
        except (OSError, ValueError):
            return False, []


class DemoExecutor(DemoProcess):
    """`runlane executor` with the demo's function."""

    def __init__(self, folder: Path, settings: Settings, place: str) -> None:
        """`place` is `module:app`."""
        self._group = settings.name(settings.executor_group)
        self._admin = AdminClient({"bootstrap.servers": settings.brokers, "client.id": settings.client_id})
        super().__init__("executor", ["executor", place], folder, settings)

    def is_ready(self) -> bool:
        """Whether it is the member of its group that has the partitions."""
        try:
            group = self._admin.describe_consumer_groups([self._group])[self._group].result()
        except KafkaException:
            return False
        return group.state == ConsumerGroupState.STABLE and any(
            member.assignment.topic_partitions for member in group.members
        )


def free_port() -> int:
    """A port that nobody listens on, below the range from which connections take theirs."""
    while True:
        port = random.SystemRandom().randrange(10_000, 20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
