"""`runlane executor` as a real process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from streams.settings import Settings
from tests.worker_process import worker_environment

RUNLANE = Path(sys.executable).with_name("runlane")
REPOSITORY = Path(__file__).parents[2]


class ExecutorProcess:
    """An executor of `tests.integration.executor_jobs` for one prefix and group; killed at the end."""

    def __init__(self, settings: Settings, group: str, log_file: Path) -> None:
        self.log_file = log_file
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(RUNLANE), "executor", "tests.integration.executor_jobs:app", "--ignore-unknown"],
                cwd=REPOSITORY,
                env=worker_environment(
                    RUNLANE_BROKERS=settings.brokers or "",
                    RUNLANE_PREFIX=settings.prefix,
                    RUNLANE_EXECUTOR_GROUP=group,
                    RUNLANE_SESSION_TIMEOUT_MS=str(settings.session_timeout_ms),
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def freeze(self) -> None:
        """SIGSTOP, as a machine that stands still."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, as a crash would end it."""
        self._process.kill()
        self._process.wait(30)

    def terminate(self) -> tuple[int, float]:
        """SIGTERM; returns the exit code and how many seconds it took."""
        started = time.monotonic()
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(30), time.monotonic() - started

    def __enter__(self) -> ExecutorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
