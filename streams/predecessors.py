"""Members of the consumer group that a dead process of this worker left behind.

A process that was killed stays in its group until its session expires, and no one works on its partitions until
then. A worker knows its predecessors by their client id, which names the machine and the data folder.
"""

from __future__ import annotations

import hashlib
import logging
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

_log = logging.getLogger(__name__)

_PATIENCE_S = 5.0


def worker_client_id(client_id: str, data_dir: Path) -> str:
    """The client id of the one worker that may use this data folder on this machine."""
    place = f"{socket.gethostname()}:{data_dir.resolve()}"
    return f"{client_id}-{hashlib.sha256(place.encode()).hexdigest()[:8]}"


def find_predecessors(connection: Mapping[str, Any], group: str) -> list[str]:
    """Ids of the group's members with this connection's client id; none when the group cannot be described in time."""
    client_id = connection["client.id"]
    admin = AdminClient({**connection, "logger": _log})
    try:
        future = admin.describe_consumer_groups([group], request_timeout=_PATIENCE_S)[group]
        members = future.result().members
    except KafkaException as error:
        _log.info("the group %s cannot be described: %s", group, error.args[0].str())
        return []
    return [member.member_id for member in members if member.client_id == client_id]
