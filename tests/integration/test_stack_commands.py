"""The commands and health checks of the Docker stack, run as they are written there, on a real broker."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from streams.settings import Settings
from streams.sync_client import RunlaneSyncClient
from tests.conftest import MakeSettings
from tests.waiting import wait_until
from tests.worker_process import RUNLANE, free_port, worker_environment

ROOT = Path(__file__).resolve().parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "infra/compose.yaml").read_text())["services"]


class Container:
    """What a container of one service sees: the stack's settings, but for what is of this machine."""

    def __init__(self, name: str, settings: Settings, folder: Path) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        own = {
            "RUNLANE_BROKERS": settings.brokers or "",
            "RUNLANE_PREFIX": settings.prefix,
            "RUNLANE_DATA_DIR": str(folder / name),
            "RUNLANE_WEB_PORT": str(free_port()),
            "RUNLANE_CLIENT_ID": f"{settings.prefix}-{name}",
        }
        self._environment = worker_environment(**{**SERVICES[name]["environment"], **own})

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        """The service's command as a process, killed at the end if it still runs."""
        program, *arguments = SERVICES[self.name]["command"]
        assert program == RUNLANE.name
        with self._log.open("wb") as log:
            process = subprocess.Popen(
                [str(RUNLANE), *arguments],
                env=self._environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def is_healthy(self) -> bool:
        """What the service's health check says."""
        _, python, script, check = SERVICES[self.name]["healthcheck"]["test"]
        assert python == "python"
        done = subprocess.run(
            [sys.executable, str(ROOT / "infra" / script), check],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert bool(done.stderr) is (done.returncode != 0), "it says why when something is wrong"
        return done.returncode == 0

    def log(self) -> str:
        """What the process has printed, for failure messages."""
        return self._log.read_text(errors="replace")


def test_the_stack_executes_a_run_and_its_health_checks_tell_the_truth(
    make_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = make_settings(apply_topics=False)
    topics = Container("topics", settings, tmp_path)
    lasting = [Container(name, settings, tmp_path) for name in ("worker-1", "worker-2", "executor")]
    assert not any(one.is_healthy() for one in lasting), "nothing runs yet"

    with topics.running() as process:
        assert process.wait(60) == 0, topics.log()
    with ExitStack() as stack:
        processes = [stack.enter_context(one.running()) for one in lasting]
        for one in lasting:
            wait_until(one.is_healthy, f"{one.name} is healthy", patience_s=90)
        with RunlaneSyncClient(settings) as client:
            run_id = uuid.uuid4().hex
            client.submit(run_id, "count-words", {"text": "to be\nor not to be"})
            end = client.wait_terminal(run_id, timeout=60)
        assert (end.status, end.total_rows) == ("completed", 6)
        assert end.result == {"different": 4, "most": {"to": 2, "be": 2, "or": 1}}

        for process in processes:
            process.terminate()
        for process, one in zip(processes, lasting, strict=True):
            assert process.wait(30) == 0, one.log()
        assert not any(one.is_healthy() for one in lasting), "all have stopped"
