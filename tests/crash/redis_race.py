"""Clients that take permits from a limit in Redis while it is killed: how many it gives beyond the limit.

`python -m tests.crash.redis_race --kills 200` runs it with `appendfsync always`, with `everysec`, and without the log
of appended commands, which is how Redis comes. Only the server is killed: a client that dies takes permits that are
charged with it, and gives none back.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from redis import Redis, RedisError

from schemas.rate_rules import RateRule
from streams.bench.redis_limits import WINDOWS, windows_arguments
from streams.bench.redis_server import RedisServer, Sync, find_redis
from tests.waiting import wait_until

CLIENTS = 4
PERMITS_PER_KILL = 400
PATIENCE_S = 300.0
_PROGRESS = 30
_PAUSE_S = 0.002


class Takers:
    """Threads that take permits of one bucket until they are refused."""

    def __init__(self, port: int, permits: int) -> None:
        self.granted = 0
        """Permits that a client was told to have."""
        self._lock = threading.Lock()
        self._port = port
        rule = RateRule(rule_id="hour", requests_per_window=permits, window_ms=3_600_000)
        self._arguments = windows_arguments([rule])
        self._threads = [threading.Thread(target=self._take) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()

    @property
    def are_refused(self) -> bool:
        """Whether all of them were."""
        return not any(thread.is_alive() for thread in self._threads)

    def _take(self) -> None:
        with Redis(port=self._port, socket_timeout=5) as client:
            script: Any = client.register_script(WINDOWS)
            while True:
                try:
                    granted, _ = script(["bucket"], self._arguments)
                except RedisError:
                    # Not known whether it was granted: asked again, and so charged twice at worst.
                    time.sleep(_PAUSE_S)
                    continue
                if not granted:
                    return
                with self._lock:
                    self.granted += 1
                time.sleep(_PAUSE_S)


def race(program: str, sync: Sync, kills: int) -> dict[str, Any]:
    """Kill it whenever there are new grants, until so many kills are done or nothing is left to grant."""
    permits, done = kills * PERMITS_PER_KILL, 0
    with (
        tempfile.TemporaryDirectory(prefix="redis-race-") as folder,
        RedisServer(program, Path(folder), sync) as server,
    ):
        server.start().wait_ready()
        takers = Takers(server.port, permits)
        while done < kills and not takers.are_refused:
            target = takers.granted + _PROGRESS

            def goes_on(target: int = target) -> bool:
                return takers.granted >= target or takers.are_refused

            wait_until(goes_on, "new grants", PATIENCE_S)
            server.kill()
            server.start().wait_ready()
            done += 1
        wait_until(lambda: takers.are_refused, "the limit is reached", PATIENCE_S)
    return {
        "appendfsync": sync,
        "kills": done,
        "permits": permits,
        "granted": takers.granted,
        "overGranted": max(0, takers.granted - permits),
    }


def main() -> None:
    """One race in each setting, and what came of it, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--redis-server")
    given = parser.parse_args()
    program = find_redis(given.redis_server)
    settings: tuple[Sync, ...] = ("always", "everysec", "off")
    print(json.dumps([race(program, sync, given.kills) for sync in settings], indent=2))


if __name__ == "__main__":
    main()
