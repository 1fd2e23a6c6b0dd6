"""The Python examples of the README, run as they stand there, on a real broker."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from schemas.topics import REPLIES, RUN_COMMANDS
from streams.settings import Settings
from tests.worker_process import RUNLANE, WorkerProcess, worker_environment

README = Path(__file__).resolve().parents[2] / "README.md"


def _examples() -> dict[str, str]:
    """The Python blocks, by the file name in their first line."""
    return {
        name: f"# {name}\n{code}"
        for name, code in re.findall(
            r"^```python\n# (\w+\.py)\n(.*?)^```$",
            README.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
    }


def test_an_executor_a_client_and_a_bare_producer(settings: Settings, tmp_path: Path) -> None:
    examples = _examples()
    assert examples.keys() == {"jobs.py", "ask.py", "bare.py"}
    # The README's topics have no prefix; those of a test have.
    for topic in (RUN_COMMANDS.name, REPLIES.name):
        assert f'"{topic}"' in examples["bare.py"]
        examples["bare.py"] = examples["bare.py"].replace(f'"{topic}"', f'"{settings.name(topic)}"')
    for name, code in examples.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    brokers = settings.brokers or ""
    environment = worker_environment(RUNLANE_BROKERS=brokers, RUNLANE_PREFIX=settings.prefix, BROKERS=brokers)

    def run(script: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    with ExitStack() as stack:
        stack.enter_context(WorkerProcess(brokers, settings.prefix, tmp_path / "worker")).start().wait_ready()
        executor = subprocess.Popen([str(RUNLANE), "executor", "jobs:app"], cwd=tmp_path, env=environment)
        stack.callback(executor.wait)
        stack.callback(executor.terminate)

        assert run("ask.py") == [
            "1 status",
            "2 log",
            "3 progress",
            "4 progress",
            "5 progress",
            "6 terminal",
            "completed {'orders': 120}",
        ]
        (printed,) = run("bare.py")
        reply = ast.literal_eval(printed)
        assert reply["ok"] is True
        assert reply["result"]["status"] == "running"
