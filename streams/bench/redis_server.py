"""A Redis of our own for a benchmark: on a free port, in a temporary folder, ended by its process id."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from streams.child_process import ChildProcess, free_port
from streams.user_errors import UserError

Sync = Literal["always", "everysec", "off"]
"""When what was written is on the disk: before it is answered; within a second or two; whenever a snapshot is made."""


class RedisServer(ChildProcess):
    """`redis-server` with its data in `folder`; started again, it goes on with what it has kept."""

    def __init__(self, program: str, folder: Path, sync: Sync) -> None:
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        keeping = ["--appendonly", "no"] if sync == "off" else ["--appendonly", "yes", "--appendfsync", sync]
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder), "--daemonize", "no"]
        super().__init__(f"redis-{sync}", [program, *own, *keeping], folder, {})

    def is_ready(self) -> bool:
        """Whether it answers; while it loads its data it does not."""
        from redis import Redis, RedisError

        with Redis(port=self.port) as client:
            try:
                return bool(client.ping())
            except RedisError:
                return False


def find_redis(given: str | None) -> str:
    """The program to start: `given`, else `redis-server` on PATH. Raises `UserError` that says how to get it."""
    program = shutil.which(given or "redis-server")
    if program is None:
        raise UserError(
            f"There is no program {given or 'redis-server'!r} to measure against.",
            "install Debian's package (apt-get install redis-server), or name one by --redis-server PATH",
        )
    if find_spec("redis") is None:
        raise UserError(
            "There is no Redis client for Python.",
            "install what benchmarks need: pip install 'runlane[bench]'",
        )
    return program
