"""A worker process: checks what it needs, takes its data folder, and runs until it is told to stop."""

from __future__ import annotations

import gc
import logging
import socket
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from filelock import FileLock, Timeout

from agents import wiring
from streams import topic_admin
from streams.allocator import limit_arenas
from streams.faust_adapter import LaneWorker, check_versions
from streams.settings import Settings
from streams.topic_admin import TopicLayout
from streams.user_errors import UserError
from streams.worker_app import WorkerApp

_SAY_AGAIN_S = 5.0
_COLLECT_EVERY_S = 30.0
_MANY_CONTAINERS = 1_000_000


def run(settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; then hand over and exit the process with 0.

    Raises `UserError` when it cannot start: wrong versions, unusable topics, a data folder or port in use.
    """
    check_versions()
    limit_arenas()
    lock = FileLock(settings.data_dir / "worker.lock")
    _take(lock, settings.data_dir)
    _require_free_port(settings)
    layout = _await_topics(settings)
    worker = WorkerApp(settings, layout)
    wiring.declare_all(worker)
    _collect_garbage_by_time()
    if settings.log_level != "debug":
        _quiet_libraries()
    LaneWorker(
        worker.faust, loglevel=settings.log_level, quiet=True, redirect_stdouts=False
    ).execute_from_commandline()


def _await_topics(settings: Settings) -> TopicLayout:
    """The topics as they are; a broker that is away is waited for, and said so."""
    while True:
        try:
            return topic_admin.require_usable(settings, patience_s=_SAY_AGAIN_S)
        except topic_admin.BrokerAwayError as error:
            print(f"runlane: waiting for Kafka: {error.message}", file=sys.stderr, flush=True)


def _take(lock: FileLock, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A file system that takes no new files looks like a lock that is held.
        Path(lock.lock_file).touch()
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(
            f"Another worker uses the data folder {folder}.",
            "give each worker its own folder, by RUNLANE_DATA_DIR or --data-dir",
        ) from None
    except (OSError, NotImplementedError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(
            f"The data folder {folder} cannot be used: {reason}.",
            "name a folder on a local disk that the worker may write to, by RUNLANE_DATA_DIR or --data-dir",
        ) from error


def _require_free_port(settings: Settings) -> None:
    with closing(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.web_host, settings.web_port))
        except OSError as error:
            raise UserError(
                f"The health server cannot listen on {settings.web_host}:{settings.web_port}: {error.strerror}.",
                "choose another port by RUNLANE_WEB_PORT or --web-port",
            ) from error


def _collect_garbage_by_time() -> None:
    # Batches make many containers and hardly a cycle: to collect by their number costs a tenth of the time.
    gc.freeze()
    gc.set_threshold(_MANY_CONTAINERS, 10, 10)

    def collect() -> None:
        while True:
            time.sleep(_COLLECT_EVERY_S)
            gc.collect()

    threading.Thread(target=collect, name="collect-garbage", daemon=True).start()


def _quiet_libraries() -> None:
    # Faust reports the start and stop of each of its services.
    for name in ("mode", "faust", "streams.faust_adapter"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A broker that is away makes these repeat themselves several times a second; health and lanes say it once.
    for name in ("aiokafka", "streams.kafka_cluster", "streams.kafka_producer"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
