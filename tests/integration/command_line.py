"""The command line as a person or a script uses it: as a process of its own."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from streams.cli.main import main
from tests.worker_process import RUNLANE, worker_environment

_PATIENCE_S = 120.0

# Each command is forked off a process that has imported everything: imports would take most of its time.
_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload([__name__])


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

    def _run(self, arguments: tuple[str, ...], stdin: str, code: int) -> _Done:
        with TemporaryDirectory() as made:
            folder = Path(made)
            (folder / "stdin").write_text(stdin)
            process = _FORKING.Process(target=_execute, args=(arguments, self.environment, folder))
            process.start()
            process.join(_PATIENCE_S)
            still_runs = process.exitcode is None
            process.kill()
            process.join()
            done = _Done((folder / "stdout").read_text(), (folder / "stderr").read_text())
        ended = f"still ran after {_PATIENCE_S:.0f} s" if still_runs else f"exited with {process.exitcode}"
        said = f"runlane {' '.join(arguments)} {ended}:\n{done.stdout}\n{done.stderr}"
        assert not still_runs, said
        assert process.exitcode == code, said
        assert "Traceback" not in done.stderr, said
        return done


class _Done(NamedTuple):
    stdout: str
    stderr: str


def _execute(arguments: tuple[str, ...], environment: dict[str, str], folder: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, closefd=False)
    main(list(arguments))


def next_json(process: subprocess.Popen[str]) -> Any:
    """The next JSON line of a following command."""
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Ctrl-C; returns the exit code and what it wrote on standard error."""
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=_PATIENCE_S)
    return process.returncode, errors
