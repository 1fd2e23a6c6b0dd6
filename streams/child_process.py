"""Processes of ours as children: started, watched by their log, harmed, and ended by their ids."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import orjson
from confluent_kafka import ConsumerGroupState, KafkaException

from streams.messaging.cluster_questions import ClusterQuestions
from streams.messaging.kafka_config import address_config
from streams.messaging.kafka_security import security_environment
from streams.settings import Settings
from streams.user_errors import UserError

READY_PATIENCE_S = 180.0
_CALL_S = 5.0
_END_PATIENCE_S = 20.0
_POLL_S = 0.02
_TAIL_LINES = 20


class ChildProcess:
    """One process that is started, perhaps several times, and ended with the block that it is used in."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """`environment` comes on top of this process's; output goes to `<folder>/<name>.log`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._command = list(command)
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it; it must not run."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for the parent, which then ends its children itself.
                start_new_session=True,
            )
        return self

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process that was started last."""
        if self._process is None:
            raise RuntimeError(f"the {self.name} was not started")
        return self._process

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        return self.running.pid

    def require_alive(self) -> None:
        """Raises `UserError`, with the end of its log, when the process has ended by itself."""
        code = self.running.poll()
        if code is not None:
            raise self.gave_up(f"The {self.name} ended with code {code}")

    def gave_up(self, what: str) -> UserError:
        """The error for something that did not happen, with the end of the process's log."""
        return UserError(f"{what}. The end of its log:\n{self.tail()}")

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        self.running.send_signal(signal.SIGKILL)
        self.running.wait(_END_PATIENCE_S)

    def freeze(self) -> None:
        """Stop it by SIGSTOP: it keeps its connections and does nothing."""
        self.running.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self.running.send_signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """SIGTERM; nothing when it was never started or has ended."""
        if self._process is not None:
            self._process.terminate()

    def wait_ended(self) -> int | None:
        """The exit code, after `ask_to_stop`; one that does not end is killed. None when it was never started."""
        if self._process is None:
            return None
        try:
            return self._process.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def stop(self) -> int | None:
        """End it by SIGTERM; returns the exit code."""
        self.ask_to_stop()
        return self.wait_ended()

    def end_at_once(self) -> None:
        """End it by SIGKILL, also when it is frozen; nothing when it was never started or has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_END_PATIENCE_S)

    def is_ready(self) -> bool:
        """Whether it can do its work."""
        raise NotImplementedError

    def wait_ready(self) -> Self:
        """Wait until it can do its work. Raises `UserError` when it ends, or takes too long."""
        deadline = time.monotonic() + READY_PATIENCE_S
        while not self.is_ready():
            self.require_alive()
            if time.monotonic() > deadline:
                raise self.gave_up(f"The {self.name} is not ready after {READY_PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)
        return self

    def tail(self) -> str:
        """The end of its log."""
        if not self.log_file.exists():
            return "(empty)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()


class RunlaneProcess(ChildProcess):
    """One `runlane ...` process."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        settings: Settings,
        name: str | None = None,
    ) -> None:
        """`settings` give brokers and the way to them, prefix, partitions, folder and port; the rest is as here."""
        given = {
            **security_environment(settings),
            "RUNLANE_BROKERS": settings.brokers or "",
            "RUNLANE_PREFIX": settings.prefix,
            "RUNLANE_PARTITIONS": str(settings.partitions),
            "RUNLANE_DATA_DIR": str(settings.data_dir),
            "RUNLANE_WEB_HOST": settings.web_host,
            "RUNLANE_WEB_PORT": str(settings.web_port),
        }
        command = [sys.executable, "-m", "streams.cli", *arguments]
        super().__init__(name or arguments[0], command, folder, given)


class WorkerChild(RunlaneProcess):
    """A `runlane worker`."""

    def __init__(self, folder: Path, settings: Settings, name: str = "worker") -> None:
        self.data_dir = settings.data_dir
        self._pages = f"http://{settings.web_host}:{settings.web_port}"
        super().__init__(["worker"], folder, settings, name)

    def is_ready(self) -> bool:
        """Whether the group has given it its lanes, be it none, and all of them serve."""
        return self.health()[0]

    def health(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether it is ready, and its lanes; (False, []) when it does not answer."""
        try:
            return True, orjson.loads(self.page("/health/ready"))["lanes"]
        except urllib.error.HTTPError as error:
            return False, orjson.loads(error.read()).get("lanes", [])
        except (OSError, ValueError):
            return False, []

    def lose_disk(self) -> None:
        """Delete the data folder; the worker must not run."""
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def lose_state(self) -> None:
        """Delete the lanes' stores and only these; the worker must not run."""
        for state in self.data_dir.glob("*/state"):
            shutil.rmtree(state)

    def page(self, path: str) -> bytes:
        """A page of its web server."""
        with urllib.request.urlopen(self._pages + path, timeout=5) as answer:
            content: bytes = answer.read()
            return content


class ExecutorChild(RunlaneProcess):
    """A `runlane executor`."""

    def __init__(self, folder: Path, settings: Settings, place: str, name: str = "executor") -> None:
        """`place` is `module:app`."""
        self._group = settings.name(settings.executor_group)
        self._questions = ClusterQuestions(address_config(settings), _CALL_S)
        super().__init__(["executor", place], folder, settings, name)

    def is_ready(self) -> bool:
        """Whether the members of its group have the partitions."""
        try:
            group = self._questions.ask(
                lambda admin: admin.describe_consumer_groups([self._group])[self._group].result()
            )
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
