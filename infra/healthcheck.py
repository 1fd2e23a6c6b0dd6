"""The health checks of the containers: exit code 0 when healthy, else 1 and a line that says why.

python healthcheck.py worker      the worker in this container serves every lane that it owns
python healthcheck.py executor    the executor in this container is in its consumer group
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

_PATIENCE_S = 4.0


def worker() -> str | None:
    """What is wrong with the worker, by its own `/health/ready`; None when nothing is."""
    port = os.environ.get("RUNLANE_WEB_PORT", "6066")
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=_PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        return error.read().decode(errors="replace")
    except OSError as error:
        return f"the worker does not answer on port {port}: {error}"
    return None


def executor() -> str | None:
    """What is wrong with the executor, by what Kafka says of its group; None when nothing is.

    It is known by its client id, which has the container's host name unless RUNLANE_CLIENT_ID is set.
    """
    # Only here, since importing them takes longer than the worker's whole check.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    from streams.settings import Settings

    settings = Settings()
    group = settings.name(settings.executor_group)
    admin = AdminClient({"bootstrap.servers": settings.brokers or "", "log_level": 0})
    try:
        described = admin.describe_consumer_groups([group], request_timeout=_PATIENCE_S)[group].result()
    except KafkaException as error:
        return f"Kafka does not say who is in the group {group}: {error.args[0].str()}"
    if all(member.client_id != settings.client_id for member in described.members):
        return f"{settings.client_id} is not in the group {group}"
    return None


CHECKS = {"worker": worker, "executor": executor}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in CHECKS:
        sys.exit(f"usage: healthcheck.py {'|'.join(CHECKS)}")
    sys.exit(CHECKS[sys.argv[1]]())
