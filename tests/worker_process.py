"""A worker as a real process: started, killed, frozen, restarted, asked over HTTP."""

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
from pathlib import Path

RUNLANE = Path(sys.executable).with_name("runlane")
_READY_PATIENCE_S = 90.0
_LOG_TAIL_LINES = 40


class WorkerProcess:
    """`runlane worker` for one prefix, with a data folder, a web port and a log file of its own.

    `folder` holds them; the data folder is `folder/data`. The object stands for one worker through all its
    restarts; the log file keeps everything.
    """

    def __init__(
        self,
        brokers: str,
        prefix: str,
        folder: Path,
        *,
        partitions: int = 4,
        settings: dict[str, str] | None = None,
    ) -> None:
        """`settings` are further settings by their environment names, such as `RUNLANE_STALL_ALARM_S`."""
        self.data_dir = folder / "data"
        self.log_file = folder / "worker.log"
        self.port = free_port()
        self._environment = worker_environment(
            RUNLANE_BROKERS=brokers,
            RUNLANE_PREFIX=prefix,
            RUNLANE_PARTITIONS=str(partitions),
            RUNLANE_DATA_DIR=str(self.data_dir),
            RUNLANE_WEB_PORT=str(self.port),
            **(settings or {}),
        )
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def pid(self) -> int:
        """Process id of the worker that was started last."""
        assert self._process is not None, "the worker was never started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs (a frozen one does)."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> WorkerProcess:
        """Start the process; `wait_ready` waits until it serves."""
        assert not self.alive, "the worker runs already"
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [str(RUNLANE), "worker"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def wait_ready(self, patience_s: float = _READY_PATIENCE_S) -> WorkerProcess:
        """Wait until `/health/ready` answers 200; fails with the end of the log."""
        deadline = time.monotonic() + patience_s
        while (status := self.get("/health/ready")[0]) != 200:
            if not self.alive:
                raise AssertionError(self.explain(f"the worker ended with code {self.exit_code()}"))
            if time.monotonic() > deadline:
                raise AssertionError(self.explain(f"/health/ready is {status} after {patience_s:.0f} s"))
            time.sleep(0.05)
        return self

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, str]:
        """HTTP status and body of a path of the worker's web server; status 0 when it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=timeout_s) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError:
            return 0, ""

    def kill(self) -> None:
        """End it by SIGKILL, also when it is frozen."""
        self._signal(signal.SIGKILL)
        self.exit_code()

    def terminate(self, patience_s: float = 10.0) -> int:
        """SIGTERM; returns the exit code. Fails when it has not ended after `patience_s`."""
        self._signal(signal.SIGTERM)
        try:
            return self.exit_code(patience_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(self.explain(f"still running {patience_s:.0f} s after SIGTERM")) from None

    def exit_code(self, patience_s: float = 30.0) -> int:
        """Wait for the end of the process."""
        assert self._process is not None, "the worker was never started"
        return self._process.wait(patience_s)

    def lose_disk(self) -> None:
        """Delete the data folder of a worker that does not run."""
        assert not self.alive, "the worker runs"
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def lose_state(self) -> None:
        """Delete the lanes' stores, and only these, of a worker that does not run."""
        assert not self.alive, "the worker runs"
        for state in self.data_dir.glob("*/state"):
            shutil.rmtree(state)

    def explain(self, problem: str) -> str:
        """The problem with the end of the worker's log, for failure messages."""
        lines = self.log_file.read_text(errors="replace").splitlines() if self.log_file.exists() else []
        tail = "\n".join(lines[-_LOG_TAIL_LINES:])
        return f"{problem}; the end of {self.log_file}:\n{tail}"

    def __enter__(self) -> WorkerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.kill()

    def _signal(self, number: signal.Signals) -> None:
        # Popen refuses to signal a process that it has seen end, so no other process can be hit.
        assert self._process is not None, "the worker was never started"
        self._process.send_signal(number)


def worker_environment(**settings: str) -> dict[str, str]:
    """The environment of a process of ours that sees only these settings of runlane."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RUNLANE_")}
    return {**inherited, "RUNLANE_CONFIG": os.devnull, **settings}


def free_port() -> int:
    """A TCP port that nobody uses."""
    # Below the ephemeral range, where a client's connection could take it in the meantime.
    while True:
        port = random.SystemRandom().randrange(10_000, 20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
