"""The command line as a person or a script uses it: as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.worker_process import RUNLANE, worker_environment

_PATIENCE_S = 120.0


class CommandLine:
    """`runlane` for one prefix."""

    def __init__(self, brokers: str, prefix: str, **settings: str) -> None:
        """`settings` are further settings by their environment names."""
        self.environment = worker_environment(RUNLANE_BROKERS=brokers, RUNLANE_PREFIX=prefix, **settings)

    def __call__(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """Standard output of a command that has to exit with `code`."""
        return self._run(arguments, stdin, code).stdout

    def errors(self, *arguments: str, stdin: str = "", code: int = 1) -> str:
        """Standard error of such a command."""
        return self._run(arguments, stdin, code).stderr

    def json(self, *arguments: str, stdin: str = "", code: int = 0) -> Any:
        """The JSON document that a command prints with --json."""
        return json.loads(self(*arguments, "--json", stdin=stdin, code=code))

    def lines(self, *arguments: str) -> list[Any]:
        """The JSON lines that a command prints with --json."""
        return [json.loads(line) for line in self(*arguments, "--json").splitlines()]

    def error(self, *arguments: str, code: int = 1) -> dict[str, Any]:
        """The error that a command prints with --json."""
        error: dict[str, Any] = json.loads(self.errors(*arguments, "--json", code=code))["error"]
        return error

    @contextmanager
    def following(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """A command that goes on until it is done or interrupted; killed at the end of the context."""
        process = subprocess.Popen(
            [str(RUNLANE), *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def _run(self, arguments: tuple[str, ...], stdin: str, code: int) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(RUNLANE), *arguments],
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
        said = f"runlane {' '.join(arguments)} exited with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        assert done.returncode == code, said
        assert "Traceback" not in done.stderr, said
        return done


def next_json(process: subprocess.Popen[str]) -> Any:
    """The next JSON line of a following command."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Ctrl-C; returns the exit code and what it wrote on standard error."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=_PATIENCE_S)
    return process.returncode, errors
