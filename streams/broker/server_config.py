"""The local broker's own settings: one KRaft node, for development, tests and benchmarks."""

from __future__ import annotations

import base64
import json
import os
import random
import socket
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from streams.user_errors import UserError

HOST = "127.0.0.1"


@dataclass(frozen=True)
class FurtherListener:
    """A listener for clients that reach the broker over something in between: whom it tells where it is."""

    port: int
    """Where the broker listens."""
    advertised_port: int
    """Where its clients are told that it listens; something has to forward from there to `port`."""


@dataclass(frozen=True)
class NodeIdentity:
    """What stays the same for one data folder: its ports and its cluster id."""

    port: int
    controller_port: int
    cluster_id: str
    further: tuple[FurtherListener, ...] = ()

    @property
    def address(self) -> str:
        """Bootstrap server, host:port."""
        return f"{HOST}:{self.port}"

    @property
    def ports(self) -> list[int]:
        """All ports that the broker listens on."""
        return [self.port, self.controller_port, *(listener.port for listener in self.further)]


def identity_file(folder: Path) -> Path:
    """Where the identity of the broker in `folder` is kept."""
    return folder / "identity.json"


def read_identity(folder: Path) -> NodeIdentity | None:
    """The identity that `folder` was given, or None when no broker was started in it yet."""
    try:
        noted = json.loads(identity_file(folder).read_text())
        further = tuple(FurtherListener(**listener) for listener in noted.pop("further", ()))
        return NodeIdentity(**noted, further=further)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{identity_file(folder)} is damaged.", f"delete {folder} to start with an empty broker"
        ) from error


def make_identity(folder: Path, further_listeners: int = 0) -> NodeIdentity:
    """Choose free ports and a cluster id for `folder` and remember them."""
    port, controller_port, *others = _free_ports(2 + 2 * further_listeners)
    further = tuple(FurtherListener(*pair) for pair in zip(others[::2], others[1::2], strict=True))
    # The storage tool would take a leading dash for an option.
    cluster_id = "-"
    while cluster_id.startswith("-"):
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    identity = NodeIdentity(port, controller_port, cluster_id, further)
    write_atomically(identity_file(folder), json.dumps(asdict(identity)))
    return identity


def can_listen(port: int) -> bool:
    """Whether nobody uses this port on the loopback interface."""
    with socket.socket() as probe:
        # As the broker does: connections in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def write_atomically(file: Path, text: str) -> None:
    """Write a small file so that a reader sees the old or the new content, never a part."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text)
    os.replace(temporary, file)


def write_properties(folder: Path, identity: NodeIdentity) -> Path:
    """Write `server.properties` for the broker in `folder`; returns the file."""
    own = [("PLAINTEXT", identity.port, identity.port)]
    own += [("CONTROLLER", identity.controller_port, identity.controller_port)]
    own += [
        (f"FURTHER{number}", listener.port, listener.advertised_port)
        for number, listener in enumerate(identity.further)
    ]
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.bootstrap.servers": f"{HOST}:{identity.controller_port}",
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port, _ in own),
        "advertised.listeners": ",".join(f"{name}://{HOST}:{advertised}" for name, _, advertised in own),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name, _, _ in own),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": folder / "data",
        "num.network.threads": 2,
        "num.io.threads": 4,
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A client's open transaction holds up its readers for at most this long.
        "transaction.max.timeout.ms": 60000,
        # A broker that was killed cannot register again before its old session is over (9 s by default).
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.dedupe.buffer.size": 16777216,
    }
    file = folder / "server.properties"
    write_atomically(file, "".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def _free_ports(count: int) -> list[int]:
    # Below every system's ephemeral range: a client that keeps dialling a stopped broker's port from that
    # range ends up connected to itself and occupies it.
    candidates = random.SystemRandom().sample(range(20_000, 32_000), 200)
    free = []
    for port in candidates:
        if can_listen(port):
            free.append(port)
            if len(free) == count:
                return free
    raise UserError("No free port between 20000 and 32000 for the local broker.", "stop what uses them")
