"""Commands of every kind that runs get: the sets that the benchmarks of run coordination send."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from streams.bench.workload import Record, append_command

EVENTS_PER_LIFE = 20
CALLS_PER_LIFE = 5


@dataclass(frozen=True)
class Series:
    """A fixed series of commands."""

    commands: int
    made_by: Callable[[], Iterable[Record]]

    def records(self) -> Iterator[Record]:
        """All commands."""
        return iter(self.made_by())


def command(type_: str, run: int, command_id: str, **fields: Any) -> Record:
    """A command about the run of this number, which `append_command` writes to, too."""
    run_id = f"bench-run-{run:06d}"
    return run_id.encode(), orjson.dumps({"type": type_, "runId": run_id, "commandId": command_id, **fields})


def call(number: int) -> dict[str, str]:
    """The name of a run's call of this number."""
    return {"toolId": "fetch", "inputHash": f"{number:064x}"}


def append_events(runs: range, numbers: range) -> Series:
    """Events of these numbers for each run; the runs take turns."""
    return Series(
        len(runs) * len(numbers),
        lambda: (append_command(run, f"event-{n}", n) for n in numbers for run in runs),
    )


def publish_calls(runs: range, numbers: range) -> Series:
    """Calls of these numbers for each run, claimed and published; the runs take turns."""

    def records() -> Iterator[Record]:
        for number in numbers:
            for run in runs:
                yield command("call.claim", run, f"claim-{number}", **call(number), owner="host:1")
            for run in runs:
                yield _publish(run, number)

    return Series(2 * len(runs) * len(numbers), records)


def steps(runs: range, numbers: range) -> Series:
    """What an executor sends while it works: an event, a call claimed, published and hit, a child's result."""

    def records() -> Iterator[Record]:
        for number in numbers:
            for run in runs:
                yield append_command(run, f"event-{number}", number)
            for run in runs:
                yield command("call.claim", run, f"claim-{number}", **call(number), owner="host:1")
            for run in runs:
                yield _publish(run, number)
            for run in runs:
                yield command("call.claim", run, f"hit-{number}", **call(number), owner="host:2")
            for run in runs:
                yield command(
                    "child.terminal.set", run, f"child-{number}", eventKey=f"child {number}", data=1
                )

    return Series(5 * len(runs) * len(numbers), records)


def lives(runs: range) -> Series:
    """Runs with launch state, 20 events and 5 calls that do not end."""

    def records() -> Iterator[Record]:
        for run in runs:
            params = {"day": "2025-01-31", "rows": list(range(20)), "note": "x" * 200}
            yield command("launch.put", run, "launch", params=params, sessions=[])
            yield command("run.submit", run, "submit", name="import-orders", params=params)
            yield command("instance.put", run, "instance", instanceId=f"bench-run-{run:06d}", attempt=1)
            for number in range(1, EVENTS_PER_LIFE):  # The submit made the first one.
                yield append_command(run, f"event-{number}", number)
            for number in range(CALLS_PER_LIFE):
                yield command("call.claim", run, f"claim-{number}", **call(number), owner="host:1")
                yield _publish(run, number)

    return Series(len(runs) * (2 + EVENTS_PER_LIFE + 2 * CALLS_PER_LIFE), records)


def mixed(runs: range) -> Series:
    """All that a run's life has, from launch to end, with every kind of write; the runs take turns."""

    def records() -> Iterator[Record]:
        trace = {"source": "coordinator", "phase": "dispatch", "ts": 1, "ms": 2}
        for run in runs:
            yield command("launch.put", run, "launch", params={"day": "2025-01-31"}, sessions=[])
        for run in runs:
            yield command("run.submit", run, "submit", name="import-orders", params={"day": "2025-01-31"})
        for run in runs:
            yield command("instance.put", run, "instance", instanceId=f"bench-run-{run:06d}", attempt=1)
        for number in range(2):
            yield from steps(runs, range(number, number + 1)).records()
        for run in runs:
            yield command("trace.add", run, "trace", trace=trace)
        for run in runs:
            yield command("run.signal", run, "signal", eventKey="approval", payload={"by": "zoe"})
        for run in runs:
            yield command("terminal.set", run, "end", status="completed", result={"rows": 7})

    return Series(16 * len(runs), records)


def _publish(run: int, number: int) -> Record:
    name = {**call(number), "fencingNumber": 1}
    return command("call.publish", run, f"publish-{number}", **name, value={"rows": number, "of": "x" * 40})
