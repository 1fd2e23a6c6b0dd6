"""Configuration of the native Kafka clients that clients, observers and executors use."""

from __future__ import annotations

from typing import Any

from streams.broker.local_broker import resolve_brokers
from streams.messaging.kafka_logging import kafka_log
from streams.messaging.kafka_security import security_config
from streams.settings import Settings

_FETCH_WAIT_MS = 50
"""How long the broker may hold an empty fetch; a record that arrives meanwhile is sent at once.

It is also what a reader waits to know that it is at the end, and what a resumed partition waits for its turn.
"""
_REPLY_FETCH_WAIT_MS = 500
"""The same for one partition that is only followed: latency is as low, and an idle client costs less."""
_FETCH_ON_AFTER_MS = 10
"""How soon a client that has fetched ahead as much as it may looks again whether there is room: by default after a
second, long after a fast reader has used up what there was."""
LONGEST_POLL_PAUSE_MS = 30_000
"""How long an executor may be busy between two polls.

The client also waits as long for the answer to its joining: were it lost, with librdkafka's default of 5 minutes, the
executor would have no partitions for all that time. And so long do the others wait for one that does not rejoin.
"""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Largest record that a client sends or takes (spec wire 2)."""


def address_config(settings: Settings) -> dict[str, Any]:
    """Where the brokers are, and how a client tells them who it is. Raises `UserError`."""
    return {
        "bootstrap.servers": resolve_brokers(settings),
        "client.id": settings.client_id,
        **security_config(settings),
    }


def connection_config(settings: Settings) -> dict[str, Any]:
    """What the clients of commands and outputs have: the address, and how they keep in touch with it."""
    return {
        **address_config(settings),
        # A broker that comes back is found within a second, not after the default's ten.
        "reconnect.backoff.ms": 250,
        "reconnect.backoff.max.ms": 1000,
        "socket.keepalive.enable": True,
        "socket.nagle.disable": True,
        "log.connection.close": False,
        "logger": kafka_log,
    }


def producer_config(settings: Settings, delivery_timeout_s: float | None) -> dict[str, Any]:
    """A producer of commands; `delivery_timeout_s` None: a record waits for the broker for ever."""
    return {
        **connection_config(settings),
        "partitioner": "murmur2_random",
        # One request at a time keeps the order over retries, and a command id makes a repeat harmless: an
        # idempotent producer would add nothing, but its first record waits 500 ms for a producer id.
        "max.in.flight.requests.per.connection": 1,
        "acks": "all",
        "message.max.bytes": MAX_MESSAGE_BYTES,
        "message.timeout.ms": 0 if delivery_timeout_s is None else int(delivery_timeout_s * 1000),
        # A lone command leaves at once; under load batches form by themselves.
        "linger.ms": 0,
    }


def reply_config(settings: Settings) -> dict[str, Any]:
    """The consumer of a client's reply partition."""
    return {**reader_config(settings), "fetch.wait.max.ms": _REPLY_FETCH_WAIT_MS}


def reader_config(settings: Settings) -> dict[str, Any]:
    """A consumer of committed records that assigns its partitions itself; its group is never joined."""
    return {
        **connection_config(settings),
        "group.id": settings.name("readers"),
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        "fetch.message.max.bytes": 1024 * 1024,
        "fetch.max.bytes": 2 * MAX_MESSAGE_BYTES,
        "receive.message.max.bytes": 2 * MAX_MESSAGE_BYTES + 1024,
        "queued.max.messages.kbytes": 32 * 1024,
        "fetch.queue.backoff.ms": _FETCH_ON_AFTER_MS,
    }


def member_config(settings: Settings, group: str) -> dict[str, Any]:
    """A member of a consumer group, which commits by itself; `group` is the name on the broker, with the prefix."""
    return {
        **connection_config(settings),
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        # A member that joins takes only the partitions that become its own; the others go on.
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": settings.session_timeout_ms,
        "heartbeat.interval.ms": settings.heartbeat_interval_ms,
        # Kafka demands that it is not shorter than the session.
        "max.poll.interval.ms": max(LONGEST_POLL_PAUSE_MS, settings.session_timeout_ms),
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
        # What is fetched ahead is fetched again after a pause, so little is fetched ahead.
        "fetch.message.max.bytes": 256 * 1024,
        "queued.min.messages": 100,
        "queued.max.messages.kbytes": 4 * 1024,
        "fetch.queue.backoff.ms": _FETCH_ON_AFTER_MS,
    }
