"""The processes that are measured: workers and baselines, each started, watched and ended by its id."""

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
import psutil

from schemas.topics import RUN_COMMANDS
from streams.bench.positions import Positions
from streams.settings import Settings
from streams.user_errors import UserError

_READY_PATIENCE_S = 180.0
_END_PATIENCE_S = 20.0
_POLL_S = 0.02
_TAIL_LINES = 20


class Measured:
    """One process that is started, perhaps several times, and ended with the block that it is used in."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, settings: Mapping[str, str]) -> None:
        """`settings` come on top of this process's environment; output goes to `<folder>/<name>.log`."""
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._command = list(command)
        self._environment = {**os.environ, **settings}
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
                start_new_session=True,
            )
        return self

    @property
    def running(self) -> subprocess.Popen[bytes]:
        """The process that was started last."""
        if self._process is None:
            raise RuntimeError(f"{self.name} was not started")
        return self._process

    def require_alive(self) -> None:
        """Raises `UserError`, with the end of its log, when the process has ended."""
        code = self.running.poll()
        if code is not None:
            raise UserError(f"{self.name} ended with code {code}. The end of its log:\n{self._tail()}")

    def gave_up(self, what: str) -> UserError:
        """The error for something that did not happen in time."""
        return UserError(f"{what}. The end of the log of {self.name}:\n{self._tail()}")

    def cpu_seconds(self) -> float:
        """Processor time that the process has used."""
        return cpu_seconds(self.running.pid)

    def resident_bytes(self) -> int:
        """Its resident memory."""
        return int(psutil.Process(self.running.pid).memory_info().rss)

    def kill(self) -> None:
        """End it by SIGKILL, as a crash would."""
        self.running.send_signal(signal.SIGKILL)
        self.running.wait(_END_PATIENCE_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code. One that does not end is killed."""
        self.running.terminate()
        try:
            return self.running.wait(_END_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return self.running.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def _tail(self) -> str:
        if not self.log_file.exists():
            return "(empty)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


class Worker(Measured):
    """A `runlane worker` with a data folder and a web port of its own."""

    def __init__(self, settings: Settings, folder: Path, name: str = "worker") -> None:
        """Topics, brokers and partitions are those of `settings`; the rest comes from the environment."""
        self.data_dir = folder / name
        self.port = _free_port()
        given = {
            "RUNLANE_BROKERS": settings.brokers or "",
            "RUNLANE_PREFIX": settings.prefix,
            "RUNLANE_PARTITIONS": str(settings.partitions),
            "RUNLANE_DATA_DIR": str(self.data_dir),
            "RUNLANE_WEB_PORT": str(self.port),
        }
        super().__init__(name, [sys.executable, "-m", "streams.cli", "worker"], folder, given)

    def wait_ready(self) -> Self:
        """Wait until every lane that it owns serves."""
        deadline = time.monotonic() + _READY_PATIENCE_S
        while not self.health()[0]:
            self.require_alive()
            if time.monotonic() > deadline:
                raise self.gave_up(f"The worker is not ready after {_READY_PATIENCE_S:.0f} s")
            time.sleep(_POLL_S)
        return self

    def health(self) -> tuple[bool, list[dict[str, Any]]]:
        """Whether it is ready, and the lanes of its health page; (False, []) when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health/ready", timeout=5) as answer:
                return True, orjson.loads(answer.read())["lanes"]
        except urllib.error.HTTPError as error:
            return False, orjson.loads(error.read()).get("lanes", [])
        except (OSError, orjson.JSONDecodeError):
            return False, []

    def watermarks(self) -> Positions:
        """Partition -> offset of the last command of `run-commands` that is committed; -1 for none."""
        return {lane["partition"]: lane["watermarks"].get(RUN_COMMANDS.name, -1) for lane in self.health()[1]}

    def has_done(self, ends: Positions) -> bool:
        """Whether every command below these ends of `run-commands` is committed."""
        marks = self.watermarks()
        return all(marks.get(partition, -1) >= end - 1 for partition, end in ends.items())

    def metric(self, name: str) -> float:
        """The sum of a metric of its metrics page over all labels; 0 when it is not there."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return sum(float(value) for label, value in pairs if label.partition("{")[0] == name)

    def lose_disk(self) -> None:
        """Delete the data folder; the worker must not run."""
        shutil.rmtree(self.data_dir, ignore_errors=True)


def cpu_seconds(pid: int) -> float:
    """Processor time, user and system, of a process and its threads; 0 when it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def _free_port() -> int:
    # Below the ephemeral range, where a client's connection could take it in the meantime.
    while True:
        port = random.SystemRandom().randrange(10_000, 20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
