"""A real Apache Kafka on this machine, by pip alone: `up`, `down`, `status`, `logs`, `kill`.

One broker per folder (`Settings.broker_dir`); it keeps its data and its address when it is started again.
"""

from __future__ import annotations

import logging
import shutil
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from filelock import FileLock, Timeout

from streams.broker import broker_process
from streams.broker.jars import KAFKA_VERSION, Progress, kafka_jars
from streams.broker.java import find_java
from streams.broker.server_config import (
    HOST,
    FurtherListener,
    NodeIdentity,
    can_listen,
    identity_file,
    make_identity,
    read_identity,
    write_properties,
)
from streams.settings import Settings
from streams.user_errors import UserError

_READY_PATIENCE_S = 120.0
_LOCK_PATIENCE_S = 600.0
_QUIET = logging.getLogger("streams.broker.client")
_QUIET.addHandler(logging.NullHandler())
_QUIET.propagate = False


@dataclass(frozen=True)
class BrokerInfo:
    """A running local broker."""

    address: str
    pid: int
    version: str
    folder: Path
    log_file: Path
    started_now: bool
    """False when it was running before."""
    further: tuple[FurtherListener, ...] = ()


@dataclass(frozen=True)
class BrokerStatus:
    """What is known of the local broker of a folder; `address` is None before its first start."""

    running: bool
    ready: bool
    address: str | None
    pid: int | None
    uptime_s: float | None
    resident_bytes: int | None
    version: str
    folder: Path
    log_file: Path


def up(
    settings: Settings, progress: Progress = lambda message: None, *, further_listeners: int = 0
) -> BrokerInfo:
    """Make the local broker run, and return when a transactional producer can work with it.

    Does nothing more than that check when it runs already; of several calls at once, one starts it and all
    return it. `progress` gets a line per step. A broker in a new folder gets so many `further_listeners`, and
    keeps them. Raises `UserError`: no Java, jars that cannot be downloaded,
    a port taken, a broker that dies at its start (with the end of its log).
    """
    folder = settings.broker_dir.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder, progress):
        identity = read_identity(folder)
        process = broker_process.find(folder)
        started_now = identity is None or process is None
        if identity is None or process is None:
            java = find_java()
            jars = kafka_jars(settings.broker_jars_dir.resolve(), progress)
            identity = identity or make_identity(folder, further_listeners)
            _refuse_taken_ports(folder, identity)
            properties = write_properties(folder, identity)
            formatted = folder / "formatted"
            if not formatted.exists():
                progress("preparing the broker's data folder")
                broker_process.format_storage(java, jars, properties, identity.cluster_id)
                formatted.touch()
            progress(f"starting Apache Kafka {KAFKA_VERSION} on {identity.address} (Java {java.version})")
            process = broker_process.start(java, jars, properties)
        _wait_until_ready(folder, identity, process)
    return BrokerInfo(
        address=identity.address,
        pid=process.pid,
        version=KAFKA_VERSION,
        folder=folder,
        log_file=broker_process.log_file(folder),
        started_now=started_now,
        further=identity.further,
    )


def down(settings: Settings) -> bool:
    """Stop the local broker cleanly; returns whether one was running. Its data stays."""
    folder = settings.broker_dir.resolve()
    if not folder.is_dir():
        return False
    with _locked(folder, lambda message: None):
        process = broker_process.find(folder)
        if process is not None:
            broker_process.stop(process)
        broker_process.process_file(folder).unlink(missing_ok=True)
        return process is not None


def kill(settings: Settings) -> bool:
    """End the local broker by SIGKILL, as a crash would; returns whether one was running.

    `up` starts it again on the same data and address.
    """
    process = broker_process.find(settings.broker_dir.resolve())
    if process is None:
        return False
    broker_process.kill(process)
    return True


def freeze(settings: Settings) -> bool:
    """Stop the local broker by SIGSTOP: it keeps its connections and does nothing. Returns whether one was running."""
    process = broker_process.find(settings.broker_dir.resolve())
    if process is None:
        return False
    process.suspend()
    return True


def thaw(settings: Settings) -> None:
    """Let a broker that was stopped by `freeze` go on."""
    process = broker_process.find(settings.broker_dir.resolve())
    if process is not None:
        process.resume()


def remove(settings: Settings) -> None:
    """Stop the local broker and delete its folder with all its data."""
    down(settings)
    shutil.rmtree(settings.broker_dir.resolve(), ignore_errors=True)


def status(settings: Settings) -> BrokerStatus:
    """Whether the local broker runs and answers, where, and what it uses."""
    folder = settings.broker_dir.resolve()
    identity = read_identity(folder)
    process = broker_process.find(folder)
    uptime = resident = None
    if process is not None:
        try:
            uptime, resident = time.time() - process.create_time(), process.memory_info().rss
        except psutil.NoSuchProcess:
            process = None
    return BrokerStatus(
        running=process is not None,
        ready=process is not None and identity is not None and _answers(identity),
        address=identity.address if identity else None,
        pid=process.pid if process else None,
        uptime_s=uptime,
        resident_bytes=resident,
        version=KAFKA_VERSION,
        folder=folder,
        log_file=broker_process.log_file(folder),
    )


def logs(settings: Settings, lines: int = 50) -> list[str]:
    """The last lines of the local broker's log; empty when it was never started."""
    return _log_tail(settings.broker_dir.resolve(), lines)


def resolve_brokers(settings: Settings) -> str:
    """The bootstrap servers to use: the setting `brokers`, else the running local broker.

    Raises `UserError` when there is neither.
    """
    if settings.brokers:
        return settings.brokers
    folder = settings.broker_dir.resolve()
    identity = read_identity(folder)
    if identity is None or broker_process.find(folder) is None:
        raise UserError(
            "No Kafka broker: the local one does not run and no other is set.",
            "start it with `runlane broker up`, or set RUNLANE_BROKERS=host:port,...",
        )
    return identity.address


@contextmanager
def _locked(folder: Path, progress: Progress) -> Iterator[None]:
    lock = FileLock(folder / "broker.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress("waiting for another process that starts or stops this broker")
        try:
            lock.acquire(timeout=_LOCK_PATIENCE_S)
        except Timeout:
            raise UserError(
                f"Another process has been starting or stopping the broker in {folder} for "
                f"{_LOCK_PATIENCE_S:.0f} s.",
                "find and end it, then try again",
            ) from None
    try:
        yield
    finally:
        lock.release()


def _refuse_taken_ports(folder: Path, identity: NodeIdentity) -> None:
    for port in identity.ports:
        if not can_listen(port):
            raise UserError(
                f"Port {port}, which the local broker of {folder} always uses, is taken{_owner_of(port)}.",
                f"stop that process, or delete {identity_file(folder)} to let new ports be chosen",
            )


def _owner_of(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.laddr and connection.laddr.port == port and connection.pid:
                return f" by process {connection.pid} ({psutil.Process(connection.pid).name()})"
    except psutil.Error:
        pass
    return ""


def _wait_until_ready(folder: Path, identity: NodeIdentity, process: psutil.Process) -> None:
    deadline = time.monotonic() + _READY_PATIENCE_S
    while time.monotonic() < deadline:
        if not broker_process.is_alive(process):
            raise UserError(
                f"The local broker died while it started. The end of {broker_process.log_file(folder)}:\n"
                + "\n".join(_log_tail(folder, 15)),
            )
        if _answers(identity):
            return
        time.sleep(0.1)
    raise UserError(
        f"The local broker (process {process.pid}) does not answer after {_READY_PATIENCE_S:.0f} s. The end "
        f"of {broker_process.log_file(folder)}:\n" + "\n".join(_log_tail(folder, 15)),
        "`runlane broker down` stops it",
    )


def _answers(identity: NodeIdentity) -> bool:
    """Whether metadata can be read and a transactional producer initialises."""
    # A client that finds the port closed backs off before it dials again; so look first.
    try:
        socket.create_connection((HOST, identity.port), timeout=1).close()
    except OSError:
        return False
    config = {"bootstrap.servers": identity.address, "client.id": "runlane-broker-check", "log_level": 0}
    try:
        if not AdminClient(config, logger=_QUIET).list_topics(timeout=5).brokers:
            return False
        producer = Producer({**config, "transactional.id": "runlane-broker-check"}, logger=_QUIET)
        # The producer's first connection; without it initialising waits for half a second.
        producer.list_topics(timeout=5)
        producer.init_transactions(10)
    except KafkaException:
        return False
    return True


def _log_tail(folder: Path, lines: int) -> list[str]:
    try:
        with broker_process.log_file(folder).open(encoding="utf-8", errors="replace") as file:
            return [line.rstrip("\n") for line in deque(file, maxlen=lines)]
    except FileNotFoundError:
        return []
