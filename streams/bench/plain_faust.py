"""The plain Faust agent that runlane is measured against, as a process of its own.

The same work as Faust's documentation would have it written: two tables in RocksDB (a run's head and its
events), one event to an output topic for each command, the end of a run to another; stock settings, at least
once. No repeats, no checks, no replies.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import faust

from schemas.topics import RUN_COMMANDS
from streams.cli.session import load_settings
from streams.faust_credentials import faust_credentials
from streams.settings import Settings

EVENTS = "bench-faust-events"
TERMINALS = "bench-faust-terminals"
APP = "bench-faust"


def make_app(settings: Settings, brokers: str) -> Any:
    """The Faust app; topics have the prefix of `settings`."""
    app = faust.App(
        settings.name(APP),
        broker=[f"kafka://{address}" for address in brokers.split(",")],
        broker_credentials=faust_credentials(settings),
        store="rocksdb://?driver=rocksdict",
        datadir=str(settings.data_dir),
        topic_partitions=settings.partitions,
        topic_replication_factor=settings.replication_factor,
        autodiscover=False,
    )
    commands = app.topic(settings.name(RUN_COMMANDS.name), key_type=str, value_serializer="json")
    events = app.topic(settings.name(EVENTS), key_type=str, value_serializer="json")
    terminals = app.topic(settings.name(TERMINALS), key_type=str, value_serializer="json")
    head_table = app.Table("heads", default=dict)
    event_table = app.Table("events")

    async def run(stream: Any) -> None:
        async for command in stream:
            run_id = command["runId"]
            head = head_table[run_id]
            if head.get("endedAt") is not None:
                continue
            seq = head.get("latestSeq", 0) + 1
            is_end = command["type"] == "terminal.set"
            event = {
                "seq": seq,
                "runId": run_id,
                "commandId": command["commandId"],
                **({"type": "terminal", "status": command["status"]} if is_end else command["event"]),
            }
            event_table[f"{run_id}/{seq}"] = event
            head_table[run_id] = {
                "status": command["status"] if is_end else "running",
                "latestSeq": seq,
                "endedAt": seq if is_end else None,
            }
            await events.send(key=run_id, value=event)
            if is_end:
                await terminals.send(key=run_id, value=event)

    app.agent(commands, name="run")(run)
    return app


def main() -> None:
    """Run the agent with the settings of the environment until SIGTERM."""
    settings = load_settings()
    app = make_app(settings, settings.brokers or "")
    sys.argv = [sys.argv[0], "worker", "--without-web", "-l", os.environ.get("BENCH_FAUST_LOG", "info")]
    app.main()


if __name__ == "__main__":
    main()
