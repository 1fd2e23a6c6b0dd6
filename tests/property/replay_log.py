"""Replay a log of commands and passing time on a small lane, and say what came of it, byte for byte.

`python -m tests.property.replay_log < log.json` prints the digest. A log is a list of `[type, run, fields]`,
and `["pass", ms]`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.run_lane import RunLane


def replay(log: list[list[Any]]) -> str:
    """The digest of every byte that the log makes the machine write, emit and answer."""
    lane = RunLane()
    for what, *rest in log:
        if what == "pass":
            lane.pass_time(rest[0])
        else:
            run, fields = rest
            lane.send(what, run, **fields)
    return lane.digest()


if __name__ == "__main__":
    print(replay(json.load(sys.stdin)))
